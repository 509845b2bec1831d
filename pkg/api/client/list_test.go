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

// pageOf answers with a page of one app. If next is not "", the header names it as
// the cursor of the next page.
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

// byCursor selects the handler by the requested cursor.
func byCursor(t *testing.T, pages map[string]http.HandlerFunc) *server {
	return serve(t, func(w http.ResponseWriter, r *http.Request) { pages[r.URL.Query().Get("cursor")](w, r) })
}

// comes reports whether c gets a value or is closed within 5 seconds. It normally
// happens at once.
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

// Formerly the client and the server worked in turns, each waiting for the other.
func TestNextPageIsRequestedAhead(t *testing.T) {
	second := make(chan struct{})
	s := byCursor(t, map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, r *http.Request) {
			link(w, r, "p2")
			w.(http.Flusher).Flush()
			if !comes(second) {
				t.Error("the client does not request the second page while the first one arrives")
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
		t.Errorf("%d requests return %q, %v", s.asked(), names(apps), err)
	}
}

func TestPageErrorIsReportedOnceInOrder(t *testing.T) {
	s := byCursor(t, map[string]http.HandlerFunc{"": pageOf("a", "p2"), "p2": status(500)})
	var got []string
	for p, err := range client.Pages(t.Context(), client.Extent{}, s.client(t).ListApps) {
		if err != nil {
			got = append(got, fmt.Sprint(client.HasStatus(err, 500)))
			continue // a sequence that does not end after the error would report it again
		}
		got = append(got, names(p.Items)...)
	}
	if want := []string{"a", "true"}; !slices.Equal(got, want) || s.asked() != 2 {
		t.Errorf("%d requests return %q, want %q", s.asked(), got, want)
	}
}

// The error is that of the first page, whatever happens to the second.
func TestUnreadablePageCancelsTheNext(t *testing.T) {
	asked, stopped := make(chan struct{}), make(chan struct{})
	s := byCursor(t, map[string]http.HandlerFunc{
		"": func(w http.ResponseWriter, r *http.Request) {
			link(w, r, "p2")
			w.(http.Flusher).Flush()
			if !comes(asked) {
				t.Error("the client does not request the second page")
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
		t.Errorf("an HTML page is accepted as the listing %q", names(apps))
	}
	if !comes(stopped) {
		t.Error("the request for the second page is not canceled")
	}
}

func TestCancelStopsThePageRequestedAhead(t *testing.T) {
	for name, leave := range map[string]func(cancel func()) (goOn bool){
		"by break":          func(func()) bool { return false },
		"by the context":    func(cancel func()) bool { cancel(); return true },
		"by both, like cli": func(cancel func()) bool { cancel(); return false },
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
					t.Fatal("the client does not request the second page")
				}
				if !leave(cancel) {
					break
				}
			}
			if !comes(stopped) {
				t.Error("the request is not canceled")
			}
			if len(errs) > 2 || errs[0] != nil || len(errs) == 2 && errs[1] != context.Canceled {
				t.Errorf("errors of the sequence: %v", errs)
			}
		})
	}
}

// The first answer breaks off. When the client repeats the request, the listing has
// changed, so the second answer names another next page.
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
		t.Errorf("listing %q, %v", names(apps), err)
	}
}

func TestUnneededPageIsNotRequested(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := r.URL.Query().Get("cursor") + "x"
		link(w, r, next)
		// A page that is not the last may have fewer items than the limit.
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
		t.Errorf("read %d items with %q, want 3 items with %q", n, asked, want)
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
