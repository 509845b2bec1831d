package process

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomKills returns how many processes of this control group the kernel killed because memory ran out, or 0 if the system
// does not show this number.
func oomKills() int64 {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::") // the line of cgroup version 2
		if !ok {
			continue
		}
		f, err := os.Open(filepath.Join("/sys/fs/cgroup", path, "memory.events"))
		if err != nil {
			return 0
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if n, ok := strings.CutPrefix(s.Text(), "oom_kill "); ok {
				v, _ := strconv.ParseInt(n, 10, 64)
				return v
			}
		}
	}
	return 0
}
