package api

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// The longest that the body of a request may take, where its route does not say
// another: whole, and of one that may take long, between two parts.
const (
	bodyTime     = 15 * time.Second
	longBodyTime = 30 * time.Minute
)

// arrival is the body of a request. An answer that is sent before the body was read
// to its end closes the connection. Otherwise net/http reads up to 256 KB of the
// body before it sends the answer, and a caller without a token holds a connection
// for as long as it sends slowly. Not safe for concurrent use.
type arrival struct {
	io.ReadCloser
	w     http.ResponseWriter
	limit *http.ResponseController
	by    time.Time     // when all of it must be there
	part  time.Duration // the longest wait for a part of it; 0: until by
	whole bool
}

// arrive bounds the body of a request. The caller calls leave once the request is
// answered.
func arrive(w http.ResponseWriter, r *http.Request) *arrival {
	a := &arrival{ReadCloser: r.Body, w: w, limit: http.NewResponseController(w), whole: r.Body == nil || r.Body == http.NoBody}
	if !a.whole {
		a.allow(bodyTime, 0)
		w.Header().Set("Connection", "close")
	}
	return a
}

// allow lets the body take so long, and each part of it; 0: no less.
func (a *arrival) allow(whole, part time.Duration) {
	a.by, a.part = time.Now().Add(whole), part
	a.wait()
}

// wait sets the deadline of the next part. Not every ResponseWriter has deadlines:
// a function of Lambda gets bodies whole.
func (a *arrival) wait() {
	until := a.by
	if next := time.Now().Add(a.part); a.part > 0 && next.Before(until) {
		until = next
	}
	_ = a.limit.SetReadDeadline(until)
}

// Read reads the body. At its end the deadline is lifted: net/http goes on
// reading, to learn that the caller has gone, and would take it for that.
func (a *arrival) Read(b []byte) (int, error) {
	if a.part > 0 && !a.whole {
		a.wait()
	}
	n, err := a.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) && !a.whole {
		a.whole = true
		a.w.Header().Del("Connection")
		_ = a.limit.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leave stops the reading of what is left of the body.
func (a *arrival) leave() {
	if !a.whole {
		_ = a.limit.SetReadDeadline(time.Unix(1, 0))
	}
}

type arrivalKey struct{}

// takeLong lets the body of a request take long, as long as parts of it arrive.
func takeLong(r *http.Request) {
	if a, ok := r.Context().Value(arrivalKey{}).(*arrival); ok && !a.whole {
		a.allow(longBodyTime, bodyTime)
	}
}
