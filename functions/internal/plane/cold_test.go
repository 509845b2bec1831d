package plane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/runtimetest"
	"github.com/fairlead/fairlead/pkg/config"
)

// BenchmarkColdStart measures how long a function takes from the start of its
// process until it asks for its first invocation, with the key service beside
// it; and the processor time of that. What Lambda does before, and the way to the
// service, are AWS's.
func BenchmarkColdStart(b *testing.B) {
	c := newCloud(b)
	for _, f := range []struct {
		name string
		cfg  any
	}{
		{"controlapi", c.controlAPI()}, {"runnerapi", c.runnerAPI()}, {"dispatch", c.dispatch()}, {"logindex", c.logIndex()},
		{"sweep", c.sweep()},
		{"webhook", &config.Webhook{Table: c.table, Queue: c.eventsURL, SealKey: c.sealKey, Timeout: 5 * time.Second, LogLevel: "info"}},
	} {
		b.Run(f.name, func(b *testing.B) {
			var wall, cpu []time.Duration
			for b.Loop() {
				cmd := function(b, f.name)
				cmd.Env = c.environ(f.cfg)
				start := time.Now()
				started := runtimetest.Start(b, cmd)
				select {
				case <-started.Ready():
				case <-started.Exited():
					b.Fatalf("it does not start: %s", started.Output())
				}
				wall = append(wall, time.Since(start))
				if err := cmd.Process.Kill(); err != nil {
					b.Fatal(err)
				}
				<-started.Exited()
				cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			b.ReportMetric(0, "ns/op") // a mean of little use
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
