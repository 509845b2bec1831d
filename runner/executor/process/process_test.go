package process_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/runner/executor/process"
)

func TestMain(m *testing.M) {
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
	suite := func(t *testing.T) {
		program := executortest.Program(t)
		executortest.Run(t, executortest.Subject{
			New: func(_ *testing.T, root string, _ func(http.RoundTripper) http.RoundTripper) executor.Executor {
				return process.New(root, []string{program}, nil)
			},
		})
	}
	t.Run("as on this machine", suite)
	for place, enter := range places {
		t.Run(place, func(t *testing.T) {
			enter(t)
			suite(t)
		})
	}
}
