package cancelmarktest_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/cancelmark/cancelmarktest"
)

func TestMemory(t *testing.T) {
	cancelmarktest.Run(t, func(*testing.T) cancelmarktest.Subject {
		m := &cancelmarktest.Memory{}
		return cancelmarktest.Subject{Marks: m, Found: func(_ *testing.T, key string) bool { return m.Has(key) }}
	})
}
