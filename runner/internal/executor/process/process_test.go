package process_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/executor/executortest"
	"github.com/fairlead/fairlead/runner/internal/executor/process"
)

func TestMain(m *testing.M) {
	executortest.Main()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func TestExecutor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	executortest.Run(t, executortest.Subject{New: func(root string) executor.Executor {
		return process.New(root, []string{self})
	}})
}
