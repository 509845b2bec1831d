package plane

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/pkg/control"
)

// Each sweep continues the move of the runners' rules until it is complete, and sweeps also if it fails.
func TestSweepMovesRulesUntilAllAreMoved(t *testing.T) {
	swept, moved := 0, 0
	sweep := Moves(func(context.Context) (control.Swept, error) { swept++; return control.Swept{}, nil },
		func(context.Context) (int, error) {
			if moved++; moved < 3 {
				return 1, errors.New("out of time")
			}
			return 1, nil
		}, slog.New(slog.DiscardHandler))
	for range 5 {
		if _, err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if swept != 5 || moved != 3 {
		t.Errorf("%d sweeps called the move %d times", swept, moved)
	}
}
