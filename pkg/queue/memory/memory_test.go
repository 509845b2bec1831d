package memory_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConforms(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open: func(*testing.T, string) (queue.Queue, func()) {
			return memory.New(time.Now, queuetest.MaxReceives), func() {}
		},
		Volatile: true,
	})
}
