// Package blobtest is the conformance suite of blob.Store. It also has a store in memory
// that passes the suite.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Harness connects the suite to one driver.
type Harness struct {
	// Open opens the store that keeps its blobs in dir. It returns the store and a function
	// that closes it. After close, opening the same dir again must find the stored blobs.
	Open func(t *testing.T, dir string) (s blob.Store, close func())

	// Volatile is true for a driver that loses its blobs on close. The suite does not test
	// its durability.
	Volatile bool
}

type suite struct {
	*testing.T
	blob.Store
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"blob is stored, read, listed and deleted", story},
		{"second put replaces the blob", replace},
		{"any bytes are stored unchanged, also none", contents},
		{"largest blob is stored and a larger one refused", largest},
		{"store and caller share no memory", ownBytes},
		{"a key may be the start of another", continued},
		{"keys that differ in case are different", upperCase},
		{"longest key is accepted", longest},
		{"list selects by prefix and is in byte order", list},
		{"invalid keys are refused by every method", badKeys},
		{"one of several concurrent puts wins completely", concurrentPuts},
		{"puts and deletes in one folder do not interfere", neighbours},
		{"call with an ended context does nothing", endedContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, done := h.Open(t, t.TempDir())
			defer done()
			c.test(&suite{t, s})
		})
	}
	t.Run("blobs survive reopening", func(t *testing.T) {
		if h.Volatile {
			t.Skip("the driver is volatile")
		}
		dir := t.TempDir()
		store, done := h.Open(t, dir)
		s := &suite{t, store}
		s.put("state/ins_1", "old")
		s.put("state/ins_1", "new")
		s.put("state/ins_2", "gone")
		s.remove("state/ins_2")
		done()
		store, done = h.Open(t, dir)
		defer done()
		s = &suite{t, store}
		s.holds("state/ins_1", "new")
		s.lists("", "state/ins_1")
	})
}

func (s *suite) put(key, data string) {
	s.Helper()
	if err := s.Put(s.Context(), key, []byte(data)); err != nil {
		s.Fatalf("put %s: %v", key, err)
	}
}

func (s *suite) remove(key string) {
	s.Helper()
	if err := s.Delete(s.Context(), key); err != nil {
		s.Fatalf("delete %s: %v", key, err)
	}
}

func (s *suite) holds(key, want string) {
	s.Helper()
	data, err := s.Get(s.Context(), key)
	if err != nil || string(data) != want {
		s.Fatalf("get %s: %.100q, %v; want %.100q", key, data, err, want)
	}
}

func (s *suite) missing(key string) {
	s.Helper()
	if data, err := s.Get(s.Context(), key); !errors.Is(err, blob.ErrNotFound) {
		s.Fatalf("get %s: %.100q, %v; want ErrNotFound", key, data, err)
	}
}

func (s *suite) lists(prefix string, want ...string) {
	s.Helper()
	keys, err := s.List(s.Context(), prefix)
	if err != nil || !slices.Equal(keys, want) {
		s.Fatalf("list %q: %q, %v; want %q", prefix, keys, err, want)
	}
}

func story(s *suite) {
	s.missing("state/ins_1/vpc")
	s.lists("")
	s.put("state/ins_1/vpc", "sealed state")
	s.holds("state/ins_1/vpc", "sealed state")
	s.lists("", "state/ins_1/vpc")
	s.missing("state/ins_1")
	s.missing("state/ins_1/vpc/x")
	for range 2 { // the second Delete finds no blob and returns no error
		s.remove("state/ins_1/vpc")
	}
	s.missing("state/ins_1/vpc")
	s.lists("")
}

func replace(s *suite) {
	s.put("k", strings.Repeat("long ", 1000))
	s.put("k", "short")
	s.holds("k", "short")
	s.lists("", "k")
}

func contents(s *suite) {
	s.put("empty", "")
	s.holds("empty", "")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	s.put("every", string(every))
	s.holds("every", string(every))
}

func largest(s *suite) {
	over := bytes.Repeat([]byte("0123456789abcdef"), blob.MaxSize/16+1)[:blob.MaxSize+1]
	data := over[:blob.MaxSize]
	if err := s.Put(s.Context(), "k", data); err != nil {
		s.Fatal(err)
	}
	if err := s.Put(s.Context(), "k", over); !errors.Is(err, blob.ErrTooLarge) {
		s.Errorf("put over the limit: %v, want ErrTooLarge", err)
	}
	got, err := s.Get(s.Context(), "k")
	if err != nil || !bytes.Equal(got, data) {
		s.Errorf("get returned %d bytes, %v; want the %d that were stored", len(got), err, len(data))
	}
}

func ownBytes(s *suite) {
	data := []byte("as put")
	if err := s.Put(s.Context(), "k", data); err != nil {
		s.Fatal(err)
	}
	copy(data, "change")
	got, err := s.Get(s.Context(), "k")
	if err != nil {
		s.Fatal(err)
	}
	copy(got, "change")
	s.holds("k", "as put")
}

func continued(s *suite) {
	keys := []string{"a", "a/b", "a/b/c", "a.blob", "a.blob/x", "b"}
	for _, key := range keys {
		s.put(key, "data of "+key)
	}
	for _, key := range keys {
		s.holds(key, "data of "+key)
	}
	s.remove("a/b")
	s.missing("a/b")
	s.holds("a", "data of a")
	s.holds("a/b/c", "data of a/b/c")
	s.lists("a/", "a/b/c")
}

func upperCase(s *suite) {
	for _, key := range []string{"ab/c", "AB/c", "aB/C", "ab/C"} {
		s.put(key, "data of "+key)
	}
	s.lists("", "AB/c", "aB/C", "ab/C", "ab/c")
	s.lists("a", "aB/C", "ab/C", "ab/c")
	s.lists("A", "AB/c")
	s.remove("ab/C")
	s.holds("ab/c", "data of ab/c")
	s.holds("aB/C", "data of aB/C")
}

func longest(s *suite) {
	segment := strings.Repeat("A", blob.MaxSegment)
	key := strings.Repeat(segment+"/", blob.MaxKey/(blob.MaxSegment+1))
	key += strings.Repeat("z", blob.MaxKey-len(key))
	s.put(key, "deep")
	s.holds(key, "deep")
	s.lists(segment, key)
	s.remove(key)
	s.lists("")
}

func list(s *suite) {
	keys := []string{"-", ".hidden", "0", "=", "_", "a-", "a.", "a/a", "a/b/c", "a/bc", "a0", "a_", "b"}
	for i := range keys {
		s.put(keys[(i*5)%len(keys)], "x")
	}
	slices.Sort(keys)
	s.lists("", keys...)
	s.lists("a/", "a/a", "a/b/c", "a/bc")
	s.lists("a/b", "a/b/c", "a/bc")
	s.lists("a/b/", "a/b/c")
	s.lists("a/b/c", "a/b/c")
	s.lists("a/b/c/")
	s.lists(".", ".hidden")
	for _, prefix := range []string{"nothing", "no/thing", "/", "//", "a//", "../", "a/../", "..", "\x00", strings.Repeat("x/", 2000)} {
		s.lists(prefix)
	}
}

func badKeys(s *suite) {
	ctx := s.Context()
	s.put("inside", "x")
	for _, key := range []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "../x", "a/../b", "a/..", "a/./b", "/etc/passwd",
		"a b", "a\x00b", "a\nb", `a\b`, "ä", "a:b", "a+b", "a,b", "~", "C:x", "a/b,blob",
		strings.Repeat("a", blob.MaxSegment+1), strings.Repeat("a/", blob.MaxKey/2) + "a",
	} {
		_, err := s.Get(ctx, key)
		for what, err := range map[string]error{
			"get": err, "put": s.Put(ctx, key, []byte("x")), "delete": s.Delete(ctx, key),
		} {
			if fairlead.KindOf(err) != fairlead.KindInvalid {
				s.Errorf("%s %.50q: %v, want kind invalid", what, key, err)
			}
		}
	}
	s.lists("", "inside")
}

func concurrentPuts(s *suite) {
	const writers, rounds = 8, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			data := bytes.Repeat([]byte{byte('a' + w)}, 10_000+w)
			for range rounds {
				if err := s.Put(s.Context(), "k", data); err != nil {
					s.Error(err)
				}
				got, err := s.Get(s.Context(), "k")
				if err != nil || len(got) < 10_000 {
					s.Errorf("got %d bytes, %v", len(got), err)
					return
				}
				if n := bytes.Count(got, got[:1]); n != len(got) || n != 10_000+int(got[0]-'a') {
					s.Errorf("the blob has %d bytes, %d of them %q", len(got), n, got[0])
				}
			}
		})
	}
	wg.Wait()
	s.lists("", "k")
}

// neighbours puts blobs into a folder while concurrent deletes make the folder empty.
func neighbours(s *suite) {
	const writers, rounds = 4, 30
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				key := fmt.Sprintf("a/b/%d", w)
				data := fmt.Sprint(i)
				if err := s.Put(s.Context(), key, []byte(data)); err != nil {
					s.Errorf("put: %v", err)
				}
				if got, err := s.Get(s.Context(), key); err != nil || string(got) != data {
					s.Errorf("get: %q, %v; want %q", got, err, data)
				}
				if _, err := s.List(s.Context(), "a/"); err != nil {
					s.Errorf("list: %v", err)
				}
				if err := s.Delete(s.Context(), key); err != nil {
					s.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	s.lists("")
}

func endedContext(s *suite) {
	s.put("k", "x")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, errGet := s.Get(ctx, "k")
	_, errList := s.List(ctx, "")
	_, errListNone := s.List(ctx, "../")
	for what, err := range map[string]error{
		"put": s.Put(ctx, "k", []byte("y")), "get": errGet, "delete": s.Delete(ctx, "k"),
		"list": errList, "list of no key": errListNone,
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	s.holds("k", "x")
}
