package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// logWait is how long the server may hold one request for more log. It is the
// server's maximum.
const logWait = 20 * time.Second

// logReader reads a job's log in chunks and returns each byte exactly once. It stores
// the position in the log, so that it can skip data that a restarted server repeats.
type logReader struct {
	client *client.Client
	ask    *patience
	job    string
	epoch  int64
	offset int64
}

// next returns the next chunk. The chunk has no data if no log arrived within the
// duration wait.
func (r *logReader) next(ctx context.Context, wait time.Duration) (wire.LogChunk, error) {
	chunk, err := ask(ctx, r.ask, func(ctx context.Context) (wire.LogChunk, error) {
		return r.client.ReadJobLog(ctx, r.job, r.epoch, r.offset, wait)
	})
	if err != nil {
		return wire.LogChunk{}, err
	}
	if chunk.Epoch != r.epoch && chunk.Epoch > 0 {
		r.epoch, r.offset = chunk.Epoch, chunk.Offset
	}
	if skip := r.offset - chunk.Offset; skip > 0 { // the server repeats data
		chunk.Data = chunk.Data[min(skip, int64(len(chunk.Data))):]
		chunk.Offset = r.offset
	}
	r.offset = max(r.offset, chunk.Next)
	return chunk, nil
}

// Fold returns two functions. The caller calls add with each piece of a log, and end at
// the end of an attempt. The function text receives the log without the sections that
// succeeded. For each section that succeeded, line receives one line. If all is true,
// text receives all sections, and line is not called.
func Fold(all bool, text func([]byte), line func(string)) (add func([]byte), end func()) {
	f := &folder{all: all, text: text, line: line}
	return f.add, f.end
}

// LogOptions are the options of Log.
type LogOptions struct {
	Client   *client.Client
	Patience time.Duration // how long the control plane may be unreachable; 0: a minute
	Follow   bool          // read until the job ends; false: read only the existing log
	Now      func() time.Time
	Tell     func(text string) // receives messages about the connection
}

// Log calls emit with each chunk of a job's log, once and in order.
func Log(ctx context.Context, job string, o LogOptions, emit func(wire.LogChunk) error) error {
	r := &logReader{client: o.Client, job: job, ask: &patience{most: o.Patience, now: o.Now, tell: o.Tell}}
	if r.ask.most == 0 {
		r.ask.most = defaultPatience
	}
	wait := time.Duration(0)
	if o.Follow {
		wait = logWait
	}
	for {
		before := r.epoch
		chunk, err := r.next(ctx, wait)
		if err != nil {
			return fmt.Errorf("read the log of job %s: %w", job, err)
		}
		if len(chunk.Data) > 0 || chunk.Truncated || chunk.TruncatedBy != "" {
			if err := emit(chunk); err != nil {
				return err
			}
		}
		if chunk.Done || !o.Follow && len(chunk.Data) == 0 && r.epoch == before {
			return nil
		}
	}
}

// Incomplete finds out what to tell the reader of a log that is not complete. The zero value is ready for use.
type Incomplete struct{ cut int64 } // the last attempt whose log was reported as cut

// Next returns the text for the chunk; "": nothing to report. A log that the control plane cut is reported when its last
// byte was read, because its job may run on for long, and once for each attempt.
func (i *Incomplete) Next(chunk wire.LogChunk) string {
	switch {
	case chunk.TruncatedBy == wire.ByLogBudget && (len(chunk.Data) > 0 || i.cut == chunk.Epoch):
		return "" // this attempt was reported, or more bytes may follow
	case chunk.TruncatedBy == wire.ByLogBudget:
		i.cut = chunk.Epoch
		return "the log ends here: the runner has used up its budget of log bytes; the job itself is not stopped"
	case chunk.Truncated && chunk.Done:
		return "the log is not complete"
	}
	return ""
}

// jobLog is the output of one job's log.
type jobLog struct {
	done chan struct{} // closed when the whole log is shown or the log cannot be read
}

// showLog writes the log's lines until the job ends.
func (f *follower) showLog(ctx context.Context, component, job string, l *jobLog) {
	defer close(l.done)
	s := splitter{emit: func(line string) {
		for part := range splitLines(view.Clean(line)) {
			f.lines.log(component, part)
		}
	}}
	defer s.end()
	fold := folder{all: f.o.Verbose, text: s.add, line: func(line string) {
		s.end()
		f.lines.log(component, fmt.Sprintf("%s (`fairlead job logs %s --all` shows it)", line, job))
	}}
	defer fold.end()
	r := &logReader{client: f.o.Client, job: job, ask: f.patience}
	wait, announced := f.o.SlowClaim, ""
	var incomplete Incomplete
	for {
		epoch := r.epoch
		chunk, err := r.next(ctx, wait)
		if err != nil {
			if ctx.Err() == nil {
				f.lines.write(component, f.style.Warn("!"), "the log of "+job+" cannot be read: "+view.Cell(err.Error()))
			}
			return
		}
		if epoch > 0 && r.epoch != epoch {
			fold.end()
			s.end()
			f.lines.write(component, f.style.Warn("!"), fmt.Sprintf("the job starts again: attempt %d", r.epoch))
		}
		fold.add(chunk.Data)
		if text := incomplete.Next(chunk); text != "" {
			fold.end()
			s.end()
			f.lines.write(component, f.style.Warn("!"), text)
		}
		if chunk.Done {
			return
		}
		if len(chunk.Data) == 0 && r.epoch == 0 && announced != claimed {
			announced = f.explainWaiting(ctx, component, job, announced)
		}
		wait = logWait
	}
}

// The states of a job that has no log yet.
const (
	queued  = "queued"
	claimed = "claimed"
)

// explainWaiting writes why a job has no log yet: why the runner does not claim it, or since
// when the runner has been starting it. announced is the state for which an earlier call wrote
// a line; the result is the state for which there is a line now.
func (f *follower) explainWaiting(ctx context.Context, component, job, announced string) string {
	j, err := f.o.Client.GetJob(ctx, job)
	if err != nil || j.State == announced {
		return announced // the explanation is optional, so its error is not shown
	}
	switch {
	case j.State == queued:
		r, err := f.o.Client.GetRunner(ctx, j.Runner)
		if err != nil {
			return announced
		}
		f.lines.write(component, f.style.Warn("!"), view.WhyWaiting(r))
	case j.State == claimed && j.ClaimedAt != nil:
		f.lines.write(component, f.style.Dim("·"), view.Starting(j, f.o.Now()))
	default:
		return announced
	}
	return j.State
}
