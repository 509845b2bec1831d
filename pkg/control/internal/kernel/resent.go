package kernel

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// resent notes the runners that did not act on the wake-up of a job, so that this process sent it
// again. Their queues can have dead letters. Safe for concurrent use.
type resent struct {
	mu sync.Mutex
	at map[fairlead.RunnerID]time.Time
}

// maxResent bounds the notes of a process.
const maxResent = 10_000

// NoteResent notes that the wake-up of a job of the runner is sent again.
func (k *Kernel) NoteResent(id fairlead.RunnerID) {
	k.resent.mu.Lock()
	defer k.resent.mu.Unlock()
	if k.resent.at == nil || len(k.resent.at) >= maxResent {
		k.resent.at = map[fairlead.RunnerID]time.Time{}
	}
	k.resent.at[id] = k.Instant()
}

// Resent reports whether this process noted the runner at this time or later.
func (k *Kernel) Resent(id fairlead.RunnerID, since time.Time) bool {
	k.resent.mu.Lock()
	defer k.resent.mu.Unlock()
	at, ok := k.resent.at[id]
	return ok && !at.Before(since)
}
