package main

import (
	"context"
	"fmt"
	"os/exec"
)

// measureStart measures the CPU time of a start of each program that runs steps. The programs print their version and end, so
// hardly anything but the start counts. They start in turn, so that both meet the same load.
func measureStart(ctx context.Context, b *bench) error {
	took := map[string][]float64{"step_start_cpu_ms": nil, "step_full_start_cpu_ms": nil}
	for range b.counts.starts {
		for figure, program := range map[string]string{"step_start_cpu_ms": "bin/fairlead-step", "step_full_start_cpu_ms": "bin/fairlead-runner"} {
			cmd := exec.CommandContext(ctx, b.path(program), "version")
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("start %s: %w", program, err)
			}
			took[figure] = append(took[figure], ms(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
		}
	}
	for figure, all := range took {
		b.set(figure, median(all))
	}
	return nil
}
