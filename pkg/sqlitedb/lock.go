package sqlitedb

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// takeLock opens path+".lock" and locks it for this process. The lock belongs to the open
// file, so the kernel releases it when the process ends, also after kill -9. A second Open
// in the same process is refused, too. The lock file is never removed: otherwise two
// processes could lock two files with the same name.
func takeLock(path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Classify("lock database "+path, err)
	}
	// EINTR: a signal interrupted the call; Go's preemption uses signals.
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder := readHolder(f)
		_ = f.Close() // nothing was written
		return nil, inUse(path, holder)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, Classify("lock database "+path, err)
	}
	// The process id is for persons who read the refusal. If it cannot be written (a full
	// disk), the lock still holds.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// readHolder returns the process id in the lock file, or "".
func readHolder(f *os.File) string {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0) // an unreadable id counts as unknown
	id := strings.TrimSpace(string(b[:n]))
	if _, err := strconv.Atoi(id); err != nil {
		return ""
	}
	return id
}

func inUse(path, holder string) error {
	e := &fairlead.Error{
		Kind:    fairlead.KindUnavailable,
		Code:    fairlead.CodeDataInUse,
		Message: fmt.Sprintf("another process is using %s", path),
		Hint:    "Stop the other process, or choose another data folder.",
		Details: map[string]string{"path": path},
	}
	if holder != "" {
		e.Message += fmt.Sprintf(" (process %s)", holder)
		e.Details["process"] = holder
	}
	return e
}
