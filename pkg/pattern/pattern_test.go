package pattern_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/pattern"
)

func TestInvalidPatternIsFoundByEachTestOfItsPackage(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New accepts an expression without its closing bracket")
		}
	}()
	pattern.New(`[a-z`)
}

func TestPatternIsCompiledAtItsFirstUse(t *testing.T) {
	if os.Getenv("PATTERN_PROGRAM") != "" {
		p := pattern.New(`[a-z`)
		os.Stdout.WriteString("started with " + p.String() + "\n")
		p.MatchString("")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+t.Name()+"$")
	cmd.Args[0] = "program" // New decides by this name whether the program is that of a test
	cmd.Env = append(os.Environ(), "PATTERN_PROGRAM=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "started with [a-z\n") || !strings.Contains(string(out), "missing closing ]") {
		t.Errorf("a program with an invalid pattern ends with %v; it must start, and fail at the first use:\n%s", err, out)
	}
}
