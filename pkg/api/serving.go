package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds are what a server holds at most for who calls it, with a token or
// without. A field that is zero has its default.
type Bounds struct {
	Header      time.Duration // until a request's header is there whole, and a TLS handshake before it; 0: 10 s
	Idle        time.Duration // between two requests on a connection; 0: 2 min
	Answer      time.Duration // until the caller has taken another answerPart of an answer; 0: 30 s
	Connections int           // open at once; 0: MaxConnections
}

// MaxConnections is how many connections a server has open at once, unless its
// Bounds have another number.
const MaxConnections = 8192

// answerPart is how much of an answer is under one deadline, in bytes.
const answerPart = 64 << 10

func (b Bounds) orDefault() Bounds {
	if b.Header == 0 {
		b.Header = 10 * time.Second
	}
	if b.Idle == 0 {
		b.Idle = 2 * time.Minute
	}
	if b.Answer == 0 {
		b.Answer = 30 * time.Second
	}
	if b.Connections == 0 {
		b.Connections = MaxConnections
	}
	return b
}

// Server returns a server of HTTP/1.1 with these bounds. An answer may take as
// long as the caller goes on taking it, and a handler as long as it likes before
// it answers: a long poll is not cut, and neither is a download that progresses.
func (b Bounds) Server(h http.Handler) *http.Server {
	b = b.orDefault()
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := &answering{ResponseWriter: w, limit: http.NewResponseController(w), part: b.Answer}
			defer a.wait() // net/http sends the rest
			h.ServeHTTP(a, r)
		}),
		ReadHeaderTimeout: b.Header, IdleTimeout: b.Idle, MaxHeaderBytes: 64 << 10,
		WriteTimeout: b.Answer, // from the header on, for what net/http answers itself; answering sets it anew
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionOf(c))
		},
		ConnState: func(c net.Conn, s http.ConnState) {
			if k := connectionOf(c); k != nil && (s == http.StateIdle || s == http.StateActive) {
				k.of.set(func() { k.idle = s == http.StateIdle })
			}
		},
	}
}

// answering gives each part of an answer a time of its own. Not safe for
// concurrent use, as no ResponseWriter is.
type answering struct {
	http.ResponseWriter
	limit *http.ResponseController
	part  time.Duration
}

// wait sets the deadline of the next part. Not every ResponseWriter has deadlines.
func (a *answering) wait() { _ = a.limit.SetWriteDeadline(time.Now().Add(a.part)) }

// Write sends the bytes part by part.
func (a *answering) Write(b []byte) (int, error) {
	sent := 0
	for {
		a.wait()
		n, err := a.ResponseWriter.Write(b[sent:min(len(b), sent+answerPart)])
		if sent += n; err != nil || sent == len(b) {
			return sent, err
		}
	}
}

// FlushError sends what was written.
func (a *answering) FlushError() error {
	a.wait()
	return a.limit.Flush()
}

// Flush sends what was written.
func (a *answering) Flush() { _ = a.FlushError() }

// Unwrap is for http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Listen bounds the connections that the listener has open at once. A caller
// without a token cannot hold what others need: when all are taken, a new one
// takes the place of the oldest connection on which no good token has come, of the
// address that has most of these; if there is none, of one that is between two
// requests. A new one is refused only where all others are in use by callers with
// good tokens, whose number Callers bounds.
func (b Bounds) Listen(ln net.Listener) net.Listener {
	return &bounded{Listener: ln, most: b.orDefault().Connections, open: map[*connection]struct{}{}}
}

type bounded struct {
	net.Listener
	most int

	mu    sync.Mutex
	taken uint64 // connections so far
	open  map[*connection]struct{}
}

// connection is one that was accepted. What of guards, its mutex guards.
type connection struct {
	net.Conn
	of    *bounded
	from  netip.Prefix
	nth   uint64
	known bool // the last token that came on it was good
	idle  bool
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k := &connection{Conn: c, of: b, from: addressOf(c.RemoteAddr().String())}
		if out := b.admit(k); out != nil {
			_ = out.Close() // its caller learns it by itself
			if out == k {
				continue
			}
		}
		return k, nil
	}
}

// admit counts the connection and returns the one that must go for it: another,
// itself, or none.
func (b *bounded) admit(k *connection) (out *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken++
	k.nth = b.taken
	if len(b.open) >= b.most {
		if out = b.dispensable(); out == nil {
			return k
		}
		delete(b.open, out)
	}
	b.open[k] = struct{}{}
	return out
}

// dispensable returns the connection that goes first, or nil.
func (b *bounded) dispensable() (out *connection) {
	strangers := map[netip.Prefix]int{}
	for k := range b.open {
		if !k.known {
			strangers[k.from]++
		}
	}
	rank := func(k *connection) int {
		if k.known {
			return 0
		}
		return strangers[k.from]
	}
	for k := range b.open {
		if (!k.known || k.idle) && (out == nil || rank(k) > rank(out) || rank(k) == rank(out) && k.nth < out.nth) {
			out = k
		}
	}
	return out
}

// set changes what the mutex guards.
func (b *bounded) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// Close closes the connection.
func (k *connection) Close() error {
	k.of.set(func() { delete(k.of.open, k) })
	return k.Conn.Close()
}

// CloseWrite lets net/http end an answer in such a way that it arrives.
func (k *connection) CloseWrite() error {
	if c, ok := k.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

type connectionKey struct{}

// connectionOf returns what Listen has accepted, also below TLS; nil: it is another.
func connectionOf(c net.Conn) *connection {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	k, _ := c.(*connection)
	return k
}

// recognise notes on the request's connection whether its token is good.
func recognise(ctx context.Context, good bool) {
	if k, _ := ctx.Value(connectionKey{}).(*connection); k != nil {
		k.of.set(func() { k.known = good })
	}
}

// addressOf returns whose address it is, given with its port: a host's, or the
// network of 64 bits that one customer has of IPv6. One that is none is the zero
// Prefix.
func addressOf(hostPort string) netip.Prefix {
	ap, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := ap.Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // the bits fit
	return p
}
