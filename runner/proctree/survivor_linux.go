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

// SurvivorsSupported reports whether RunSurvivor works on this system.
const SurvivorsSupported = true

// RunSurvivor starts cmd in a new process group, copies its output to stdout and stderr, and waits for
// its end. It sets cmd's output, extra files and attributes. stdout and stderr may be the same writer
// if that is safe for concurrent use. When ctx ends, RunSurvivor interrupts the tool once and
// continues to wait. It never kills the tool. The caller can kill the tool and the rest of its group:
// RunSurvivor passes the tool's PID, which is also the PID of the group, to started. The parameter
// folder is the attempt's workspace, in which AwaitSurvivor finds the tool.
//
// If ctx has ended before the tool starts, the error is ctx's error. If the tool cannot be started, it
// is the error of the start. If the tool fails, it is an *exec.ExitError.
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
	defer life.Close() // kept open while the tool runs
	cmd.Stdout, cmd.Stderr = toolOut, toolErrs
	cmd.ExtraFiles = []*os.File{watch}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	if err == nil && interruptAtEnd(watch, cmd.Process.Pid) == nil {
		// If recordSurvivor fails, for example on a full disk, and the step dies later, the agent does
		// not wait for the tool.
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
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(os.Interrupt) }) // fails if the tool has just ended; that is harmless
	defer stop()

	var readers sync.WaitGroup
	readers.Go(func() { copyOut(stdout, out) })
	readers.Go(func() { copyOut(stderr, errs) })
	err = cmd.Wait()
	// All output of the tool is in the pipes now. A process that the tool left behind may hold them
	// open forever.
	now := time.Unix(1, 0)
	out.SetReadDeadline(now)
	errs.SetReadDeadline(now)
	readers.Wait()
	return err
}

// interruptAtEnd makes the kernel interrupt the process once, when the last write end of the pipe
// closes. r is the read end of the pipe; the process holds it too. The parent-death signal
// (PR_SET_PDEATHSIG) is no alternative: the kernel can send it more than once while a parent with
// many threads dies, and a tool that is interrupted twice ends without saving its state.
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

// pipe returns two files of a new pipe. r is the read end and supports read deadlines. tool is for the
// tool, and is both read end and write end: while the tool has it open, the pipe has a reader.
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

// maxRest bounds the bytes that are read after the tool has ended. It is more than a pipe can hold.
const maxRest = 1 << 20

// copyOut copies from r to w until the end of the pipe. After r's deadline it copies what is left in
// the pipe.
func copyOut(w io.Writer, r *os.File) {
	if _, err := io.Copy(w, r); !errors.Is(err, os.ErrDeadlineExceeded) {
		return // the end of the pipe, or an error
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

// AwaitSurvivor waits until the tool that RunSurvivor started in the folder has ended, or ctx ends. It
// may be called only after the step has ended: it takes the tool's output away from other readers.
func AwaitSurvivor(ctx context.Context, folder string) (Outcome, error) {
	rec, err := findSurvivor(folder)
	if err != nil || rec.PID == 0 {
		return None, err
	}
	for _, fd := range []string{"1", "2"} {
		f, err := os.OpenFile("/proc/"+strconv.Itoa(rec.PID)+"/fd/"+fd, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // the tool has just ended; otherwise a full pipe may block it until ctx ends
		}
		drained := make(chan struct{})
		go func() { defer close(drained); io.Copy(io.Discard, f) }()
		defer func() { f.Close(); <-drained }() // Close ends the copy
	}
	err = WaitGone(ctx, rec.PID, rec.Start)
	unix.Wait4(rec.PID, nil, unix.WNOHANG, nil) // reaps the tool if this process adopted it; fails otherwise
	if err != nil {
		return Working, nil
	}
	return Ended, nil
}

// SurvivorAtWork reports whether the tool that RunSurvivor started in the folder still runs.
func SurvivorAtWork(folder string) bool {
	rec, err := findSurvivor(folder)
	return err == nil && rec.PID != 0
}

// findSurvivor returns the tool that runs in the folder. Its PID is 0 if none runs.
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
		return survivor{}, fmt.Errorf("read which tool runs in the workspace: %w", err)
	}
	if !Alive(rec.PID, rec.Start) {
		return survivor{}, nil
	}
	return rec, nil
}
