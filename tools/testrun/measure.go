package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// measureCommand is the first argument with which go test starts this program in place of a
// test binary. go test then takes no result from its cache.
const measureCommand = "measure"

// measureEnv names the file of CPU times.
const measureEnv = "FAIRLEAD_TESTRUN_CPU"

// measurement is a line of a file of CPU times.
type measurement struct {
	Dir string // absolute path of the package's folder
	CPU time.Duration
}

// measure runs a test binary, appends its measurement to the file and returns its exit code. The CPU
// time includes the processes that the tests have waited for: a server or runner that
// a test leaves to the system is not in it.
func measure(file string, command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// go test sends SIGQUIT at the timeout, so that the tests print their goroutines.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait() // the state has the result
	if err := record(file, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		return 1
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// record appends one line with one write, because several test binaries run at the same time.
func record(file string, cpu time.Duration) error {
	// go test runs a test binary in the folder of its package.
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	line, err := json.Marshal(measurement{Dir: dir, CPU: cpu})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
