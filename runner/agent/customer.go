package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/internal/mode"
)

// lookEvery is how often an agent looks at what its customer has said. It is
// less than the time between two heartbeats, with which the word goes on.
const lookEvery = 2 * time.Second

// hear returns the customer's word: the stricter of what the environment and
// the data folder say; and the latter alone.
func (a *Agent) hear() (word, kept mode.Word) {
	kept, err := mode.Read(a.cfg.Data)
	a.heard.error("the customer's word cannot be read; nothing is begun until it can", err)
	return mode.Stricter(kept, a.started), kept
}

// listen obeys the customer until ctx ends: it looks at what was said now and
// then, and needs no control plane to be told.
func (a *Agent) listen(ctx context.Context) {
	for {
		word, kept := a.hear()
		a.obey(ctx, word)
		a.obeyed.error("a person who waits for it does not learn that the customer's word is obeyed", mode.Obey(a.cfg.Data, kept))
		retry.Sleep(ctx, lookEvery)
		if ctx.Err() != nil {
			return
		}
	}
}

// obey makes the word the one that counts. A poll that is under way ends with
// leave to work; a claim that it brings all the same is given back.
func (a *Agent) obey(life context.Context, w mode.Word) {
	a.mu.Lock()
	before := a.word
	a.word = w
	if !w.Mode.Takes() && a.endPoll != nil {
		a.endPoll()
	}
	running := len(a.steps)
	a.mu.Unlock()
	if before == w {
		return
	}
	a.log.Info("the customer's word", "mode", w.Mode, "reason", w.Reason, "before", before.Mode, "running", running)
	notify(a.freed)
	notify(a.beatNow)
	if w.Mode == mode.Disabled && before.Mode != mode.Disabled {
		a.interrupt(life)
	}
}

// customer is the word as a heartbeat carries it; nil: the agent may work. The
// lock is held.
func (a *Agent) customer() *wire.CustomerWord {
	if a.word.Mode.Takes() {
		return nil
	}
	out := &wire.CustomerWord{Mode: string(a.word.Mode), Reason: a.word.Reason}
	if !a.word.Since.IsZero() {
		since := a.word.Since.UTC()
		out.Since = &since
	}
	return out
}
