package api

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// The default time limits of a request's body.
const (
	bodyTime     = 15 * time.Second // for the whole body, or for each part of a long body
	longBodyTime = 30 * time.Minute // for the whole of a long body
)

// arrival is the body of a request. If the server answers before it has read the
// whole body, it closes the connection. Otherwise net/http reads up to 256 KB of the
// body before it sends the answer, and a caller without a token could keep a
// connection open by sending slowly. Not safe for concurrent use.
type arrival struct {
	io.ReadCloser
	w     http.ResponseWriter
	limit *http.ResponseController
	by    time.Time     // deadline of the whole body
	part  time.Duration // longest wait for the next part; 0: only the deadline by applies
	whole bool          // the body was read to its end, or there is none
}

// arrive sets the time limit of a request's body. The caller must call leave after
// it has answered the request.
func arrive(w http.ResponseWriter, r *http.Request) *arrival {
	a := &arrival{ReadCloser: r.Body, w: w, limit: http.NewResponseController(w), whole: r.Body == nil || r.Body == http.NoBody}
	if !a.whole {
		a.allow(bodyTime, 0)
		w.Header().Set("Connection", "close")
	}
	return a
}

// allow sets the time limits of the whole body and of each part. If part is 0, a part
// has no limit of its own.
func (a *arrival) allow(whole, part time.Duration) {
	a.by, a.part = time.Now().Add(whole), part
	a.wait()
}

// wait sets the deadline of the next part. It ignores a ResponseWriter without
// deadlines: a Lambda function, for example, receives whole bodies.
func (a *arrival) wait() {
	until := a.by
	if next := time.Now().Add(a.part); a.part > 0 && next.Before(until) {
		until = next
	}
	_ = a.limit.SetReadDeadline(until)
}

// Read reads the body. At the end of the body it removes the deadline. net/http goes
// on reading to detect a closed connection, and would take an expired deadline for a
// closed connection.
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

// leave stops net/http from reading the rest of the body.
func (a *arrival) leave() {
	if !a.whole {
		_ = a.limit.SetReadDeadline(time.Unix(1, 0))
	}
}

type arrivalKey struct{}

// takeLong permits longBodyTime for the body of a request, if each part arrives
// within bodyTime.
func takeLong(r *http.Request) {
	if a, ok := r.Context().Value(arrivalKey{}).(*arrival); ok && !a.whole {
		a.allow(longBodyTime, bodyTime)
	}
}
