package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// pageOf answers with a page of one app, and says in the header which is next if
// that is not "".
func pageOf(app, next string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		link(w, r, next)
		answer(wire.Page[wire.App]{Items: []wire.App{{Name: app}}, Next: next})(w, r)
	}
}

func link(w http.ResponseWriter, r *http.Request, next string) {
	if next != "" {
		w.Header().Set(wire.HeaderLink, wire.NextLink(r.URL.Query(), next))
	}
}

// byCursor answers by the cursor that is asked for.
func byCursor(t *testing.T, pages map[string]http.HandlerFunc) *server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) { pages[r.URL.Query().Get("cursor")](w, r) })
}

// comes waits for what is to happen at once, and takes its time if it does not.
func comes[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-time.After(5 * time.Second):
		return false
	}
}

func names(apps []wire.App) (names []string) {
	for _, a := range apps {
		names = append(names, a.Name)
	}
	return names
}

// A caller and the server worked in turns: neither did anything while the other did.
func TestNextPageIsRequestedAhead(t *testing.T) {
	second := make(chan struct{})
	s := byCursor(t, map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, r *http.Request) {
			link(w, r, "p2")
			w.(http.Flusher).Flush()
			if !comes(second) {
				t.Error("the second page is not asked for while the first one is under way")
			}
			pageOf("a", "p2")(w, r)
		},
		"p2": func(w http.ResponseWriter, r *http.Request) {
			close(second)
			pageOf("b", "")(w, r)
		},
	})
	apps, err := client.All(t.Context(), s.client(t).ListApps)
	if err != nil || !slices.Equal(names(apps), []string{"a", "b"}) || s.asked() != 2 {
		t.Errorf("%d requests list %q, %v", s.asked(), names(apps), err)
	}
}

func TestFailedPageIsReportedOnceAndInOrder(t *testing.T) {
	s := byCursor(t, map[string]http.HandlerFunc{"": pageOf("a", "p2"), "p2": status(500)})
	var got []string
	for p, err := range client.Pages(t.Context(), client.Extent{}, s.client(t).ListApps) {
		if err != nil {
			got = append(got, fmt.Sprint(client.HasStatus(err, 500)))
			continue // a sequence that goes on after its error would report it again
		}
		got = append(got, names(p.Items)...)
	}
	if want := []string{"a", "true"}; !slices.Equal(got, want) || s.asked() != 2 {
		t.Errorf("%d requests give %q, want %q", s.asked(), got, want)
	}
}

// The first page's own failure counts, whatever becomes of the second.
func TestUnreadablePageCancelsTheNext(t *testing.T) {
	asked, stopped := make(chan struct{}), make(chan struct{})
	s := byCursor(t, map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, r *http.Request) {
			link(w, r, "p2")
			w.(http.Flusher).Flush()
			if !comes(asked) {
				t.Error("the second page is not asked for")
			}
			text(200, "text/html", "<html>")(w, r)
		},
		"p2": func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
			close(stopped)
		},
	})
	if apps, err := client.All(t.Context(), s.client(t).ListApps); err == nil || apps != nil {
		t.Errorf("a page of HTML is the listing %q", names(apps))
	}
	if !comes(stopped) {
		t.Error("the request for the second page goes on")
	}
}

func TestCancelStopsThePageRequestedAhead(t *testing.T) {
	for name, leave := range map[string]func(cancel func()) (goOn bool){
		"by leaving":         func(func()) bool { return false },
		"by the context":     func(cancel func()) bool { cancel(); return true },
		"by both, like Main": func(cancel func()) bool { cancel(); return false },
	} {
		t.Run(name, func(t *testing.T) {
			asked, stopped := make(chan struct{}), make(chan struct{})
			s := byCursor(t, map[string]http.HandlerFunc{"": pageOf("a", "p2"), "p2": func(_ http.ResponseWriter, r *http.Request) {
				close(asked)
				<-r.Context().Done()
				close(stopped)
			}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var errs []error
			for _, err := range client.Pages(ctx, client.Extent{}, s.client(t).ListApps) {
				if errs = append(errs, err); err != nil {
					continue
				}
				if !comes(asked) {
					t.Fatal("the second page is not asked for")
				}
				if !leave(cancel) {
					break
				}
			}
			if !comes(stopped) {
				t.Error("the request goes on")
			}
			if len(errs) > 2 || errs[0] != nil || len(errs) == 2 && errs[1] != context.Canceled {
				t.Errorf("the sequence ends with %v", errs)
			}
		})
	}
}

// An answer that breaks off is asked for again, and by then the listing has changed.
func TestRepeatedPageDecidesTheNextPage(t *testing.T) {
	old := make(chan struct{})
	first := true
	s := byCursor(t, map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				link(w, r, "old")
				w.(http.Flusher).Flush()
				comes(old)
				cutInside(w, r)
			}
			pageOf("new", "p2")(w, r)
		},
		"old": func(w http.ResponseWriter, r *http.Request) {
			close(old)
			pageOf("of another listing", "")(w, r)
		},
		"p2": pageOf("b", ""),
	})
	apps, err := client.All(t.Context(), s.client(t).ListApps)
	if err != nil || !slices.Equal(names(apps), []string{"new", "b"}) {
		t.Errorf("the listing is %q, %v", names(apps), err)
	}
}

func TestUnwantedPageIsNotRequested(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := r.URL.Query().Get("cursor") + "x"
		link(w, r, next)
		// Of a page that is not the last, there may be less than was asked for.
		items := make([]wire.App, map[string]int{"x": 2, "xx": 0, "xxx": 1}[next])
		answer(wire.Page[wire.App]{Items: items, Next: next})(w, r)
	})
	n := 0
	for p, err := range client.Pages(t.Context(), client.Extent{Page: 2, Most: 3}, s.client(t).ListApps) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(p.Items)
	}
	var asked []string
	for _, r := range s.requests {
		asked = append(asked, r.URL.RawQuery)
	}
	if want := []string{"limit=2", "cursor=x&limit=1", "cursor=xx&limit=1"}; n != 3 || !slices.Equal(asked, want) {
		t.Errorf("for 3 items %d are read by %q, want %q", n, asked, want)
	}
}

func TestLargeLimitAllocatesNoMemory(t *testing.T) {
	s := serve(t, status(422))
	if _, err := s.client(t).ListApps(t.Context(), client.ListOptions{Limit: 1 << 60}); !client.HasStatus(err, 422) {
		t.Error(err)
	}
	if _, err := s.client(t).ListApps(t.Context(), client.ListOptions{Limit: -1}); !client.HasStatus(err, 422) {
		t.Error(err)
	}
}
