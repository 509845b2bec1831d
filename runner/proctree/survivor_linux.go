package proctree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/safefile"
)

// SurvivorsSupported reports whether RunSurvivor can be used on this system.
const SurvivorsSupported = true

// RunSurvivor starts cmd, whose output and attributes are set here, in a process group
// of its own, copies what it says to stdout and stderr (which may be one writer
// if it is safe for concurrent use), and returns how it ended. When ctx ends it
// interrupts the tool, once, and waits on: to kill it, and what else is in its
// group, is up to the caller, who learns its number from started. folder is the
// attempt's workspace, where AwaitSurvivor will look.
//
// The error is that of starting the tool, ctx's if it had ended before, or an
// *exec.ExitError.
func RunSurvivor(ctx context.Context, folder string, cmd *exec.Cmd, stdout, stderr io.Writer, started func(pid int)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	out, toolOut, err := pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	errs, toolErrs, err := pipe()
	if err != nil {
		toolOut.Close()
		return err
	}
	defer errs.Close()
	watch, life, err := os.Pipe()
	if err != nil {
		toolOut.Close()
		toolErrs.Close()
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer life.Close() // held as long as the tool is at work
	cmd.Stdout, cmd.Stderr = toolOut, toolErrs
	cmd.ExtraFiles = []*os.File{watch}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if err == nil && interruptAtEnd(watch, cmd.Process.Pid) == nil {
		// Not kept, as on a full disk: should the step die, the agent does not wait.
		recordSurvivor(folder, cmd.Process.Pid)
	}
	watch.Close()
	toolOut.Close()
	toolErrs.Close()
	if err != nil {
		return err
	}
	defer os.Remove(filepath.Join(folder, survivorFile))
	started(cmd.Process.Pid)
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(os.Interrupt) }) // fails if it has just ended: fine
	defer stop()

	var readers sync.WaitGroup
	readers.Go(func() { copyOut(stdout, out) })
	readers.Go(func() { copyOut(stderr, errs) })
	err = cmd.Wait()
	// All that the tool said is in the pipes now. What it has left behind may
	// hold them open for ever.
	now := time.Unix(1, 0)
	out.SetReadDeadline(now)
	errs.SetReadDeadline(now)
	readers.Wait()
	return err
}

// interruptAtEnd makes the kernel interrupt the process, once, when the last
// writer of the pipe is gone, whose reading end r is: the process holds that end
// as well. The parent's death signal would not do: it is sent again and again
// while a parent of many threads dies, and a tool that is interrupted a second
// time ends without saving anything.
func interruptAtEnd(r *os.File, pid int) error {
	c, err := r.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) {
		for _, set := range []struct{ cmd, arg int }{{unix.F_SETOWN, pid}, {unix.F_SETSIG, int(unix.SIGINT)}, {unix.F_SETFL, unix.O_ASYNC}} {
			if _, serr = unix.FcntlInt(fd, set.cmd, set.arg); serr != nil {
				return
			}
		}
	})
	return errors.Join(err, serr)
}

// pipe returns the reading end, on which a read can be given up, and an end for
// the tool that counts as both: as long as the tool has it, it has a reader.
func pipe() (r, tool *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer w.Close()
	fd := -1
	c, err := w.SyscallConn()
	if err == nil {
		var oerr error
		err = c.Control(func(wfd uintptr) {
			fd, oerr = unix.Open("/proc/self/fd/"+strconv.Itoa(int(wfd)), unix.O_RDWR|unix.O_CLOEXEC, 0)
		})
		err = errors.Join(err, oerr)
	}
	if err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("open both ends of a pipe: %w", err)
	}
	return r, os.NewFile(uintptr(fd), "tool's output"), nil
}

// maxRest bounds what is read once the tool has ended: more than any pipe holds.
const maxRest = 1 << 20

// copyOut copies until the end of the pipe, or, once the deadline of r is set,
// until nothing is left in it.
func copyOut(w io.Writer, r *os.File) {
	if _, err := io.Copy(w, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return // the end
	}
	c, err := r.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for rest := 0; rest < maxRest; {
		n := 0
		err := c.Control(func(fd uintptr) {
			for {
				if n, err = unix.Read(int(fd), buf); !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
		if err != nil || n <= 0 {
			return
		}
		w.Write(buf[:n])
		rest += n
	}
}

func recordSurvivor(folder string, pid int) {
	p, err := Stat(pid)
	if err != nil {
		return
	}
	b, err := json.Marshal(survivor{PID: pid, Start: p.Start})
	if err != nil {
		return
	}
	safefile.Replace(filepath.Join(folder, survivorFile), b, 0o600)
}

// AwaitSurvivor waits until the tool that RunSurvivor has started in the folder has ended, or
// ctx ends. To be called when the step is gone, and only then: it takes what
// the tool says from whoever else reads it.
func AwaitSurvivor(ctx context.Context, folder string) (Outcome, error) {
	rec, err := findSurvivor(folder)
	if err != nil || rec.PID == 0 {
		return None, err
	}
	for _, fd := range []string{"1", "2"} {
		f, err := os.OpenFile("/proc/"+strconv.Itoa(rec.PID)+"/fd/"+fd, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // it has just ended; else it may be held up, and the time is bounded
		}
		drained := make(chan struct{})
		go func() { defer close(drained); io.Copy(io.Discard, f) }()
		defer func() { f.Close(); <-drained }() // the closing ends the copying
	}
	err = WaitGone(ctx, rec.PID, rec.Start)
	unix.Wait4(rec.PID, nil, unix.WNOHANG, nil) // ours if this process adopts orphans; fails otherwise
	if err != nil {
		return Working, nil
	}
	return Ended, nil
}

// SurvivorAtWork reports whether the tool that RunSurvivor has started in the folder is at work.
func SurvivorAtWork(folder string) bool {
	rec, err := findSurvivor(folder)
	return err == nil && rec.PID != 0
}

// findSurvivor returns the tool that is at work in the folder; its PID is 0 if none is.
func findSurvivor(folder string) (survivor, error) {
	b, err := os.ReadFile(filepath.Join(folder, survivorFile))
	if errors.Is(err, fs.ErrNotExist) {
		return survivor{}, nil
	}
	var rec survivor
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil || rec.PID <= 1 {
		return survivor{}, fmt.Errorf("read which tool is at work: %w", err)
	}
	if !Alive(rec.PID, rec.Start) {
		return survivor{}, nil
	}
	return rec, nil
}
