package joblogtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConforms(t *testing.T) {
	joblogtest.Run(t, joblogtest.Harness{
		Open: func(joblogtest.TB, string) (joblog.Log, func()) {
			return joblogtest.Memory(), func() {}
		},
		Volatile: true,
	})
}

func TestMemoryTransportConforms(t *testing.T) {
	joblogtest.RunTransport(t, func(*testing.T) joblogtest.Transport { return joblogtest.MemoryTransport() })
}
