//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the paths of the programs.
type programs struct {
	Fairlead string // the server and the CLI
	Runner   string
	Tool     string // OpenTofu or Terraform
	Clock    bool   // whether the wall clock of Fairlead and Runner can be changed
}

// clockVariable is the environment variable with the path of a file. The file has the offset of
// the program's wall clock in nanoseconds: eight bytes in the machine's byte order, which the
// program reads at each call of time.Now.
const clockVariable = "FAIRLEAD_SOAK_CLOCK"

// clockSource is added to package time of the tested programs. A preloaded library cannot change
// the clock of a Go program, because Go reads the clock from the kernel directly. A time
// namespace changes all clocks except the wall clock.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var skew = openSkew()

func openSkew() *int64 {
	path, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("open the clock of the soak: " + err.Error())
	}
	defer syscall.Close(fd)
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the clock of the soak: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}

func skewed(sec int64, nsec int32) (int64, int32) {
	by := atomic.LoadInt64(skew)
	sec += by / 1e9
	n := int64(nsec) + by%1e9
	if n < 0 {
		sec, n = sec-1, n+1e9
	} else if n >= 1e9 {
		sec, n = sec+1, n-1e9
	}
	return sec, int32(n)
}
`

// clockAnchor is the line of time.Now after which the offset is added.
const clockAnchor = "\tsec, nsec, mono := runtimeNow()\n"

// build builds the programs in dir. If the standard library differs from the expected one, the
// programs use the host's clock, and noClock is the reason.
func build(dir string) (p programs, noClock, err error) {
	p = programs{Fairlead: filepath.Join(dir, "fairlead"), Runner: filepath.Join(dir, "fairlead-runner")}
	if p.Tool, err = findTool(); err != nil {
		return p, nil, err
	}
	overlay, noClock := writeOverlay(dir)
	p.Clock = noClock == nil
	for _, b := range []struct{ out, pkg string }{{p.Fairlead, "cmd/fairlead"}, {p.Runner, "runner"},
		{filepath.Join(dir, "fairlead-step"), "runner/fairlead-step"}} {
		args := []string{"build", "-o", b.out}
		if p.Clock {
			args = append(args, "-overlay", overlay)
		}
		cmd := exec.Command("go", append(args, "github.com/fairlead/fairlead/"+b.pkg)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return p, nil, fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return p, noClock, nil
}

func writeOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	if bytes.Count(source, []byte(clockAnchor)) != 1 {
		return "", errors.New("time.Now of this Go release differs from the one that the soak can change")
	}
	source = bytes.Replace(source, []byte(clockAnchor), []byte(clockAnchor+"\tsec, nsec = skewed(sec, nsec)\n"), 1)
	replaced, added, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "skew.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(std, "time.go"): replaced, filepath.Join(std, "skew.go"): added}})
	return overlay, errors.Join(err, os.WriteFile(replaced, source, 0o600),
		os.WriteFile(added, []byte(clockSource), 0o600), os.WriteFile(overlay, list, 0o600))
}

func findTool() (string, error) {
	names := []string{"tofu", "terraform"}
	if v := os.Getenv("FAIRLEAD_TOFU"); v != "" {
		names = []string{v}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%s not found; set FAIRLEAD_TOFU to OpenTofu or Terraform", strings.Join(names, " and "))
}
