// Package sealtest is the conformance suite of seal.Sealer.
package sealtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
)

const place = "install/ins_1/input/password"

// Open returns a new Sealer with the named key. The first use of a name in a test creates
// the key of this name. The same name in another test is another key.
type Open func(t *testing.T, key string) seal.Sealer

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"value opens only at its place", onePlace},
		{"values of every size open", sizes},
		{"every changed byte and every truncation is detected", damage},
		{"value opens in another process only with the same key", otherProcess},
		{"any value opens, and sealing twice gives different bytes", anyValue},
		{"concurrent calls succeed", many},
		{"an empty place and an ended context are refused", refusals},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

func sealed(t *testing.T, s seal.Sealer, value string) []byte {
	t.Helper()
	b, err := s.Seal(t.Context(), []byte(value), place)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opens(t *testing.T, s seal.Sealer, b []byte, want string) {
	t.Helper()
	got, err := s.Open(t.Context(), b, place)
	if err != nil || string(got) != want {
		t.Fatalf("opened %.100q, %v; want %.100q", got, err, want)
	}
}

func onePlace(t *testing.T, open Open) {
	s := open(t, "key")
	b := sealed(t, s, "correct horse battery staple")
	opens(t, s, b, "correct horse battery staple")
	if bytes.Contains(b, []byte("horse")) {
		t.Errorf("the sealed value contains the plain one: %q", b)
	}
	for _, other := range []string{"install/ins_2/input/password", place + "/", place + "\x00", place[1:], strings.ToUpper(place)} {
		if got, err := s.Open(t.Context(), b, other); !errors.Is(err, seal.ErrDamaged) || got != nil {
			t.Errorf("at the place %q it opens: %q, %v", other, got, err)
		}
	}
}

func sizes(t *testing.T, open Open) {
	s := open(t, "key")
	for _, n := range []int{0, 1, 15, 16, 17, 4096, 4097, 1 << 20} { // KMS encrypts at most 4,096 bytes directly
		value := strings.Repeat("v", n)
		opens(t, s, sealed(t, s, value), value)
	}
}

func damage(t *testing.T, open Open) {
	s := open(t, "key")
	b := sealed(t, s, "secret")
	look := func(what string, i int, bad []byte) {
		got, err := s.Open(t.Context(), bad, place)
		if got != nil || !errors.Is(err, seal.ErrDamaged) && !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("%s %d: %q, %v", what, i, got, err)
		}
		if e, ok := errors.AsType[*fairlead.Error](err); !ok || e.Hint == "" || !strings.Contains(e.Message, place) {
			t.Errorf("%s %d: the error has no place or no hint: %#v", what, i, err)
		}
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 8)
		look("changed at", i, bad)
		look("truncated to", i, b[:i])
	}
	look("longer by", 1, append(bytes.Clone(b), 0))
	opens(t, s, b, "secret")
}

func otherProcess(t *testing.T, open Open) {
	b := sealed(t, open(t, "key"), "kept")
	opens(t, open(t, "key"), b, "kept")
	if got, err := open(t, "another").Open(t.Context(), b, place); !errors.Is(err, seal.ErrUnknownKey) || got != nil {
		t.Errorf("with another key it opens: %q, %v", got, err)
	}
}

func anyValue(t *testing.T, open Open) {
	s := open(t, "key")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		at := rapid.StringN(1, 50, -1).Draw(t, "place")
		a, err := s.Seal(t.Context(), value, at)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Seal(t.Context(), value, at)
		if err != nil || bytes.Equal(a, b) {
			t.Fatalf("sealing twice gave the same bytes (error %v)", err)
		}
		if got, err := s.Open(t.Context(), a, at); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("opened %q, %v; want %q", got, err, value)
		}
	})
}

func many(t *testing.T, open Open) {
	s := open(t, "key")
	b := sealed(t, s, "shared")
	fresh := open(t, "key") // fresh has not used the key yet, so all goroutines load it at the same time
	var g sync.WaitGroup
	for range 20 {
		g.Go(func() {
			if got, err := fresh.Open(t.Context(), b, place); err != nil || string(got) != "shared" {
				t.Errorf("opened %q, %v", got, err)
			}
			own, err := fresh.Seal(t.Context(), []byte("own"), place)
			if err != nil {
				t.Error(err)
			}
			if got, err := s.Open(t.Context(), own, place); err != nil || string(got) != "own" {
				t.Errorf("opened %q, %v", got, err)
			}
		})
	}
	g.Wait()
}

func refusals(t *testing.T, open Open) {
	s := open(t, "key")
	b := sealed(t, s, "x")
	if _, err := s.Seal(t.Context(), []byte("x"), ""); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("seal with an empty place: %v", err)
	}
	if _, err := s.Open(t.Context(), b, ""); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("open with an empty place: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Seal(ctx, []byte("x"), place); !errors.Is(err, context.Canceled) {
		t.Errorf("seal with an ended context: %v", err)
	}
	if _, err := s.Open(ctx, b, place); !errors.Is(err, context.Canceled) {
		t.Errorf("open with an ended context: %v", err)
	}
}
