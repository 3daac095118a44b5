#!/bin/sh
# The first process of the guest: runs /run.sh with the words of `case=` on the kernel's command line, and powers off.
# The host reads the console: lines that begin with a word in capitals are for it.
export PATH=/bin LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
echo 4 >/proc/sys/kernel/printk
for module in $(cat /lib/modules/order); do insmod "/lib/modules/$module" || echo "insmod $module failed"; done
ip link set lo up
. /steps.sh
. /run.sh
check_steps
case=$(sed -n 's/.*case=\([^ ]*\).*/\1/p' /proc/cmdline)
"run_${case%%,*}" $(echo "$case" | cut -s -d, -f2- | tr , ' ')
step "nothing uses the guest's own disk any more" umount /host
echo "STEP end $(cut -d' ' -f1 /proc/uptime)"
poweroff -f
