package joblogtest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// model implements the contract of joblog.Log in the simplest form: byte slices in a map
// and short functions.
type model map[joblog.Stream]*modelStream

type modelStream struct {
	data                  []byte
	ended, truncated, cut bool
}

func (m model) fence(job string) (highest int64) {
	for s := range m {
		if s.Job == job {
			highest = max(highest, s.Epoch)
		}
	}
	return highest
}

func (m model) open(s joblog.Stream) error {
	if s.Epoch < m.fence(s.Job) {
		return joblog.ErrFenced
	}
	if m[s] == nil {
		m[s] = &modelStream{}
	}
	return nil
}

func (m model) append(s joblog.Stream, offset int64, data []byte) error {
	st := m[s]
	if st == nil {
		return joblog.ErrNotFound
	}
	size := int64(len(st.data))
	end := offset + int64(len(data))
	if end <= size && bytes.Equal(st.data[offset:end], data) {
		return nil
	}
	if st.ended || s.Epoch < m.fence(s.Job) {
		return joblog.ErrFenced
	}
	if st.cut {
		return joblog.ErrCut
	}
	if offset > size {
		return &joblog.OffsetError{Want: size}
	}
	if !bytes.HasPrefix(data, st.data[offset:min(size, end)]) {
		return joblog.ErrDiverged
	}
	st.data = append(st.data[:offset:offset], data...)
	return nil
}

func (m model) end(s joblog.Stream, truncated bool) error {
	st := m[s]
	if st == nil {
		return joblog.ErrNotFound
	}
	if !st.ended {
		st.ended, st.truncated = true, truncated || st.cut
	}
	return nil
}

func (m model) cut(s joblog.Stream) error {
	st := m[s]
	if st == nil {
		return joblog.ErrNotFound
	}
	st.cut = st.cut || !st.ended
	return nil
}

func (m model) info(s joblog.Stream) joblog.Info {
	st := m[s]
	return joblog.Info{
		Stream: s, Size: int64(len(st.data)), Ended: st.ended, Truncated: st.truncated, Cut: st.cut,
		CRC32: crc32.ChecksumIEEE(st.data),
	}
}

func (m model) streams(job string) (infos []joblog.Info) {
	for s := range m {
		if s.Job == job {
			infos = append(infos, m.info(s))
		}
	}
	slices.SortFunc(infos, func(a, b joblog.Info) int { return int(a.Stream.Epoch - b.Stream.Epoch) })
	return infos
}

// same reports whether the driver's error got equals the model's error want.
func same(got, want error) bool {
	if want == nil || got == nil {
		return got == nil && want == nil
	}
	if w, ok := errors.AsType[*joblog.OffsetError](want); ok {
		g, ok := errors.AsType[*joblog.OffsetError](got)
		return ok && *g == *w
	}
	return errors.Is(got, want)
}

// checkModel makes the same random calls to the driver and to the model, and compares the
// results. It uses few jobs, epochs, offsets and letters, so that the calls conflict often.
func checkModel(t *testing.T, h Harness) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			t.Fatal(err)
		}
		log, closeLog := h.Open(t, dir)
		defer func() { closeLog() }()
		m := model{}
		jobs := rapid.SampledFrom([]string{"job_1", "job_2"})
		stream := func() joblog.Stream {
			return joblog.Stream{Job: jobs.Draw(t, "job"), Epoch: rapid.Int64Range(1, 3).Draw(t, "epoch")}
		}
		agree := func(what string, got, want error) {
			if !same(got, want) {
				t.Fatalf("%s: the driver returned %v, the model %v", what, got, want)
			}
		}
		actions := map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				s := stream()
				agree("open "+s.String(), log.Open(ctx, s), m.open(s))
			},
			"append": func(t *rapid.T) {
				s := stream()
				data := rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 5).Draw(t, "data")
				offset := rapid.Int64Range(0, 12).Draw(t, "offset")
				if st := m[s]; st != nil && rapid.Bool().Draw(t, "at the end") {
					offset = int64(len(st.data))
				}
				next, err := log.Append(ctx, s, offset, data)
				agree(fmt.Sprintf("append %q at %d of %s", data, offset, s), err, m.append(s, offset, data))
				if want := offset + int64(len(data)); err == nil && next != want {
					t.Fatalf("append %q at %d of %s: next is %d", data, offset, s, next)
				}
			},
			"end": func(t *rapid.T) {
				s, truncated := stream(), rapid.Bool().Draw(t, "truncated")
				agree("end "+s.String(), log.End(ctx, s, truncated), m.end(s, truncated))
			},
			"cut": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("a rare call, so that most streams can grow")
				}
				s := stream()
				agree("cut "+s.String(), log.Cut(ctx, s), m.cut(s))
			},
			"read": func(t *rapid.T) {
				s := stream()
				offset := rapid.Int64Range(0, 20).Draw(t, "offset")
				limit := rapid.IntRange(1, 9).Draw(t, "limit")
				c, err := log.Read(ctx, s, offset, limit)
				st := m[s]
				if st == nil {
					agree("read "+s.String(), err, joblog.ErrNotFound)
					return
				}
				agree("read "+s.String(), err, nil)
				from := min(offset, int64(len(st.data)))
				want := st.data[from:min(from+int64(limit), int64(len(st.data)))]
				if !bytes.Equal(c.Data, want) || c.Next != offset+int64(len(want)) || c.Info != m.info(s) ||
					c.Ended != (st.ended && c.Next >= int64(len(st.data))) {
					t.Fatalf("read %d at %d of %s: %+v; want %q of %+v", limit, offset, s, c, want, m.info(s))
				}
			},
			"streams": func(t *rapid.T) {
				job := jobs.Draw(t, "job")
				infos, err := log.Streams(ctx, job)
				if want := m.streams(job); err != nil || !slices.Equal(infos, want) {
					t.Fatalf("streams of %s: %v, %v; want %v", job, infos, err, want)
				}
			},
			"drop": func(t *rapid.T) {
				job := jobs.Draw(t, "job")
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("a rare call, so that jobs are not always empty")
				}
				agree("drop "+job, log.Drop(ctx, job), nil)
				for s := range m {
					if s.Job == job {
						delete(m, s)
					}
				}
			},
		}
		if !h.Volatile {
			actions["reopen"] = func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("reopening is slow")
				}
				closeLog()
				log, closeLog = h.Open(t, dir)
			}
		}
		t.Repeat(actions)
	})
}
