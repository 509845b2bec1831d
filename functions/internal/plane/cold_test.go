package plane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/config"
)

// BenchmarkColdStart measures the wall time and the processor time from the start of a function's
// process until it asks for its first invocation. The key service is a local server. Two times are
// not included: the time that Lambda needs before the process starts, and the time of the network
// to the real key service.
func BenchmarkColdStart(b *testing.B) {
	c := newCloud(b)
	for _, f := range []struct {
		name string
		cfg  any
	}{
		{"controlapi", c.controlAPI()}, {"sessionapi", c.sessionAPI()}, {"runnerapi", c.runnerAPI()}, {"dispatch", c.dispatch()}, {"logindex", c.logIndex()},
		{"sweep", c.sweep()},
		{"webhook", &config.Webhook{Table: c.table, Queue: c.eventsURL, SealKey: c.sealKey, Timeout: 5 * time.Second, LogLevel: "info"}},
	} {
		b.Run(f.name, func(b *testing.B) {
			var wall, cpu []time.Duration
			for b.Loop() {
				cmd := function(b, f.name)
				cmd.Env = c.environ(f.cfg)
				start := time.Now()
				started := runtimetest.Start(b, cmd, runtimetest.Timeout)
				select {
				case <-started.Ready():
				case <-started.Exited():
					b.Fatalf("the function did not start: %s", started.Output())
				}
				wall = append(wall, time.Since(start))
				if err := cmd.Process.Kill(); err != nil {
					b.Fatal(err)
				}
				<-started.Exited()
				cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			b.ReportMetric(0, "ns/op") // removes the mean, which is of little use
			b.ReportMetric(median(wall), "ms-p50")
			b.ReportMetric(median(cpu), "cpu-ms-p50")
			b.ReportMetric(float64(slices.Max(wall))/1e6, "ms-max")
		})
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / 1e6
}
