// Command probe is the program that the Dockerfiles of imagebuildtest run. It must be static, because these images have no
// other files.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "write":
		return os.WriteFile(args[1], []byte("written by the build"), 0o644)
	case len(args) == 2 && args[0] == "fail":
		fmt.Println(args[1])
		os.Exit(7)
	case len(args) == 2 && args[0] == "wait": // the second argument is for the test, which looks for the process
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("working " + args[1])
		for {
			time.Sleep(time.Hour) // until it is killed
		}
	case len(args) == 2 && args[0] == "look":
		return look(args[1])
	}
	return fmt.Errorf("usage: probe write|fail|wait|look ARGUMENT, got %q", args)
}

// Found is what a program of a build can see.
type Found struct {
	Environ []string          `json:"environ"`
	Files   map[string]string `json:"files"` // content by path, of small files outside of /proc, /sys and /dev
}

// look writes to a file what this process can see: its environment, that of all processes, and all small files.
func look(to string) error {
	found := Found{Environ: os.Environ(), Files: map[string]string{}}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, path := range environs {
		if text, err := os.ReadFile(path); err == nil { // a process may be gone, or of another user
			found.Environ = append(found.Environ, strings.Split(string(text), "\x00")...)
		}
	}
	err = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it may not be read
		case path == "/proc", path == "/sys", path == "/dev":
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > 1<<20 {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			found.Files[path] = string(text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
