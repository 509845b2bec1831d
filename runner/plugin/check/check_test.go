package check_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/check"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlugin(t *testing.T) {
	plugintest.Run(t, plugintest.Subject{
		New: func(string) plugin.Plugin { return check.Plugin{} },
		Good: func(int) plugin.Spec {
			return plugin.Spec{Plugin: check.Name, Operation: "check", Job: "job_1", Epoch: 1}
		},
	})
}
