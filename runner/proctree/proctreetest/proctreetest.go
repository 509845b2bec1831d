//go:build linux

// Package proctreetest makes control groups in which tests start agents and steps.
package proctreetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/tools/testserver"
)

// made counts the groups of this process.
var made atomic.Int64

// Group makes a control group. The end of the test kills its processes and removes it. If no group can
// be made, the test is skipped, or fails if FAIRLEAD_REQUIRE_CGROUP is "1".
func Group(t testing.TB) proctree.Group {
	t.Helper()
	g, err := group(t)
	if err != nil {
		testserver.Missing(t, "CONTROL GROUPS ARE NOT TESTED", "FAIRLEAD_REQUIRE_CGROUP", "Run as root, or in a delegated control group", err)
	}
	return g
}

// Barren is like Group, but no process can make a group below the returned group. It simulates a
// machine on which an agent may not make control groups. If this machine is such a machine, it returns
// "".
func Barren(t testing.TB) proctree.Group {
	t.Helper()
	g, err := group(t)
	if err != nil {
		return ""
	}
	if err := os.WriteFile(filepath.Join(string(g), "cgroup.max.descendants"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	return g
}

func group(t testing.TB) (proctree.Group, error) {
	g, err := proctree.MakeGroup(fmt.Sprintf("fairlead-test-%d-%d", os.Getpid(), made.Add(1)))
	if err == nil {
		t.Cleanup(func() {
			if err := g.Remove(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return g, err
}
