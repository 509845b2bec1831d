package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/proctree/proctreetest"
)

// places are the environments in which the executor keeps a step's processes together in different ways. Each function
// moves this process into its environment until the test ends.
var places = map[string]func(*testing.T){
	"in a control group": func(t *testing.T) { enter(t, proctreetest.Group(t)) },
	"below a shim":       func(t *testing.T) { enter(t, proctreetest.Barren(t)) },
}

func enter(t *testing.T, g proctree.Group) {
	if g == "" {
		return
	}
	before, err := proctree.FindGroup("")
	if err != nil {
		t.Fatal(err)
	}
	move := func(to proctree.Group) {
		if err := os.WriteFile(filepath.Join(string(to), "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { move(before) })
	move(g)
}
