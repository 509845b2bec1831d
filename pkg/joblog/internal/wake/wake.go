// Package wake lets followers of a stream wait for the next change of the stream in the same
// process. A change wakes all followers, because each follower has its own cursor and needs
// the new bytes.
package wake

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// Board has the followers of all streams. The zero value is ready. Safe for concurrent use.
// A stream without followers uses no memory.
type Board struct {
	mu      sync.Mutex
	streams map[joblog.Stream]*followers
}

type followers struct {
	n       int
	changed chan struct{} // the next change closes it
}

// Follow calls read until read returns a byte, the end of the stream or an error. Between the
// calls it waits for a change of the stream. If ctx ends first, Follow returns the last empty
// chunk and no error, as joblog.Log requires.
func (b *Board) Follow(ctx context.Context, s joblog.Stream, offset int64, read func(context.Context) (joblog.Chunk, error)) (joblog.Chunk, error) {
	last := joblog.Chunk{Next: offset, Info: joblog.Info{Stream: s}}
	f := b.join(s)
	defer b.leave(s, f)
	for ctx.Err() == nil {
		// Get the channel before the read, so that a change after the read closes it.
		changed := b.next(f)
		c, err := read(ctx)
		if err != nil && ctx.Err() != nil {
			break // ctx ended during the read
		}
		if err != nil || len(c.Data) > 0 || c.Ended {
			return c, err
		}
		last = c
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return last, nil
}

// Changed wakes the followers of the streams. Call it after the change is stored.
func (b *Board) Changed(streams ...joblog.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range streams {
		if f := b.streams[s]; f != nil {
			close(f.changed)
			f.changed = make(chan struct{})
		}
	}
}

// Followed reports whether the stream has a follower.
func (b *Board) Followed(s joblog.Stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams[s] != nil
}

func (b *Board) join(s joblog.Stream) *followers {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams == nil {
		b.streams = map[joblog.Stream]*followers{}
	}
	f := b.streams[s]
	if f == nil {
		f = &followers{changed: make(chan struct{})}
		b.streams[s] = f
	}
	f.n++
	return f
}

func (b *Board) next(f *followers) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f.changed
}

func (b *Board) leave(s joblog.Stream, f *followers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.n--; f.n == 0 {
		delete(b.streams, s)
	}
}
