package joblogtest

import (
	"bytes"
	"cmp"
	"context"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/internal/wake"
)

// Memory returns an empty log for tests and simulations. The log exists only in this process
// and passes the suite.
func Memory() joblog.Mover {
	return &memory{jobs: map[string]map[int64]*stream{}, budgets: map[string]joblog.Account{}}
}

type memory struct {
	board wake.Board

	mu      sync.Mutex
	jobs    map[string]map[int64]*stream // by job and epoch
	budgets map[string]joblog.Account    // by runner
}

type stream struct {
	data      []byte
	ended     bool
	truncated bool
	cut       bool
	moved     *joblog.Info
}

func (m *memory) Open(ctx context.Context, s joblog.Stream) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced(s) {
		return joblog.ErrFenced
	}
	epochs := m.jobs[s.Job]
	if epochs == nil {
		epochs = map[int64]*stream{}
		m.jobs[s.Job] = epochs
	}
	if epochs[s.Epoch] == nil {
		epochs[s.Epoch] = &stream{}
	}
	return nil
}

func (m *memory) fenced(s joblog.Stream) bool {
	for epoch := range m.jobs[s.Job] {
		if epoch > s.Epoch {
			return true
		}
	}
	return false
}

func (m *memory) Append(ctx context.Context, s joblog.Stream, offset int64, data []byte) (int64, error) {
	if err := cmp.Or(joblog.CheckAppend(s, offset, data), ctx.Err()); err != nil {
		return 0, err
	}
	m.mu.Lock()
	next, err := m.append(s, offset, data)
	m.mu.Unlock()
	if err == nil {
		m.board.Changed(s)
	}
	return next, err
}

func (m *memory) append(s joblog.Stream, offset int64, data []byte) (int64, error) {
	st := m.jobs[s.Job][s.Epoch]
	if st == nil {
		return 0, joblog.ErrNotFound
	}
	if st.moved != nil {
		if offset+int64(len(data)) > st.moved.Size {
			return 0, joblog.ErrFenced
		}
		if len(data) == 0 {
			return offset, nil
		}
		return 0, joblog.ErrMoved
	}
	size := int64(len(st.data))
	overlap := max(0, min(int64(len(data)), size-offset))
	same := offset <= size && bytes.Equal(st.data[offset:offset+overlap], data[:overlap])
	if whole := offset <= size && overlap == int64(len(data)); whole && same {
		return offset + overlap, nil
	}
	switch {
	case st.ended || m.fenced(s):
		return 0, joblog.ErrFenced
	case st.cut:
		return 0, joblog.ErrCut
	case offset > size:
		return 0, &joblog.OffsetError{Want: size}
	case offset+int64(len(data)) > joblog.MaxStream:
		return 0, joblog.ErrFull
	case !same:
		return 0, joblog.ErrDiverged
	}
	st.data = append(st.data, data[overlap:]...)
	return int64(len(st.data)), nil
}

func (m *memory) End(ctx context.Context, s joblog.Stream, truncated bool) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	st := m.jobs[s.Job][s.Epoch]
	if st != nil && !st.ended {
		st.ended, st.truncated = true, truncated || st.cut
	}
	m.mu.Unlock()
	if st == nil {
		return joblog.ErrNotFound
	}
	m.board.Changed(s)
	return nil
}

// Move implements joblog.Mover.
func (m *memory) Move(ctx context.Context, info joblog.Info) error {
	if err := cmp.Or(joblog.CheckMove(info), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.jobs[info.Stream.Job][info.Stream.Epoch]
	switch {
	case st == nil:
		return joblog.ErrNotFound
	case st.moved != nil:
		return nil
	case !st.ended || int64(len(st.data)) > info.Size:
		return joblog.NotMovable(st.info(info.Stream))
	}
	info.Ended = true
	st.moved, st.data = &info, nil
	return nil
}

func (m *memory) Read(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := cmp.Or(joblog.CheckRead(s, offset, limit), ctx.Err()); err != nil {
		return joblog.Chunk{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.jobs[s.Job][s.Epoch]
	if st == nil {
		return joblog.Chunk{}, joblog.ErrNotFound
	}
	c := joblog.Chunk{Info: st.info(s), Next: offset}
	if st.moved != nil && offset < c.Info.Size {
		return c, joblog.ErrMoved
	}
	if offset < c.Info.Size {
		c.Next = min(offset+int64(min(limit, joblog.MaxRead)), c.Info.Size)
		c.Data = bytes.Clone(st.data[offset:c.Next])
	}
	c.Ended = st.ended && c.Next >= c.Info.Size
	return c, nil
}

func (st *stream) info(s joblog.Stream) joblog.Info {
	if st.moved != nil {
		return *st.moved
	}
	return joblog.Info{
		Stream: s, Size: int64(len(st.data)), CRC32: crc32.ChecksumIEEE(st.data),
		Ended: st.ended, Truncated: st.truncated, Cut: st.cut,
	}
}

func (m *memory) Follow(ctx context.Context, s joblog.Stream, offset int64, limit int) (joblog.Chunk, error) {
	if err := joblog.CheckRead(s, offset, limit); err != nil {
		return joblog.Chunk{}, err
	}
	return m.board.Follow(ctx, s, offset, func(ctx context.Context) (joblog.Chunk, error) {
		return m.Read(ctx, s, offset, limit)
	})
}

func (m *memory) Followed(ctx context.Context, s joblog.Stream) (bool, error) {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.jobs[s.Job][s.Epoch]
	if st == nil {
		return false, joblog.ErrNotFound
	}
	if st.cut && !st.ended {
		return false, joblog.ErrCut
	}
	return !st.ended && m.board.Followed(s), nil
}

func (m *memory) Cut(ctx context.Context, s joblog.Stream) error {
	if err := cmp.Or(joblog.CheckStream(s), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.jobs[s.Job][s.Epoch]
	if st == nil {
		return joblog.ErrNotFound
	}
	st.cut = st.cut || !st.ended
	return nil
}

func (m *memory) Spend(ctx context.Context, runner string, n int64, b joblog.Budget, now time.Time) (bool, error) {
	if err := cmp.Or(joblog.CheckSpend(runner, n), ctx.Err()); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, left := b.Take(m.budgets[runner], n, now)
	if left && n > 0 {
		m.budgets[runner] = a
	}
	return left, nil
}

func (m *memory) Streams(ctx context.Context, job string) ([]joblog.Info, error) {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []joblog.Info
	for _, epoch := range slices.Sorted(maps.Keys(m.jobs[job])) {
		infos = append(infos, m.jobs[job][epoch].info(joblog.Stream{Job: job, Epoch: epoch}))
	}
	return infos, nil
}

func (m *memory) Drop(ctx context.Context, job string) error {
	if err := cmp.Or(joblog.CheckJob(job), ctx.Err()); err != nil {
		return err
	}
	m.mu.Lock()
	var dropped []joblog.Stream
	for epoch := range m.jobs[job] {
		dropped = append(dropped, joblog.Stream{Job: job, Epoch: epoch})
	}
	delete(m.jobs, job)
	m.mu.Unlock()
	m.board.Changed(dropped...)
	return nil
}
