package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds holds the limits of a server for all callers, with or without a token. A
// zero field means the default.
type Bounds struct {
	Header      time.Duration // for a request's whole header, and for a TLS handshake before it; 0: 10 s
	Idle        time.Duration // between two requests on a connection; 0: 2 min
	Answer      time.Duration // for sending each answerPart bytes of an answer; 0: 30 s
	Connections int           // connections that are open at the same time; 0: MaxConnections
}

// MaxConnections is the default of Bounds.Connections.
const MaxConnections = 8192

// answerPart is the number of bytes of an answer that share one deadline.
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

// Server returns an HTTP/1.1 server with these bounds. An answer has no time limit as
// long as the caller goes on receiving it. A handler has no time limit until it
// answers. So the server cuts neither a long poll nor a download that progresses.
func (b Bounds) Server(h http.Handler) *http.Server {
	b = b.orDefault()
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := &answering{ResponseWriter: w, limit: http.NewResponseController(w), part: b.Answer}
			defer a.wait() // net/http sends the rest
			h.ServeHTTP(a, r)
		}),
		ReadHeaderTimeout: b.Header, IdleTimeout: b.Idle, MaxHeaderBytes: 64 << 10,
		WriteTimeout: b.Answer, // for answers of net/http itself; answering sets a new deadline for each part
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

// answering sets a deadline for each part of an answer. Like any ResponseWriter it
// is not safe for concurrent use.
type answering struct {
	http.ResponseWriter
	limit *http.ResponseController
	part  time.Duration
}

// wait sets the deadline of the next part, unless the ResponseWriter has no deadlines.
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

// Unwrap returns the wrapped ResponseWriter to http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Listen limits the number of open connections of the listener, so that callers
// without a token cannot lock out others. If the limit is reached, each new connection
// replaces an old one. The server first closes a connection without a valid token: the
// oldest connection of the address that has most such connections. If every connection
// has a valid token, the server closes a connection that is between two requests. It
// refuses a new connection only if each open connection has a valid token and a
// request in progress; Callers limits the requests of these callers.
func (b Bounds) Listen(ln net.Listener) net.Listener {
	return &bounded{Listener: ln, most: b.orDefault().Connections, open: map[*connection]struct{}{}}
}

type bounded struct {
	net.Listener
	most int

	mu    sync.Mutex
	taken uint64 // number of connections accepted so far
	open  map[*connection]struct{}
}

// connection is an accepted connection. The mutex of the field of guards known and idle.
type connection struct {
	net.Conn
	of    *bounded
	from  netip.Prefix
	nth   uint64
	known bool // true if the last token on this connection was valid
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
			_ = out.Close() // its caller notices the closed connection
			if out == k {
				continue
			}
		}
		return k, nil
	}
}

// admit counts the connection k and returns the connection to close: an older
// connection, k itself if it is refused, or nil if the limit is not reached.
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

// dispensable returns the connection to close first, or nil.
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

// set calls change with the mutex held.
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

// CloseWrite closes the writing side, so that net/http can end an answer without
// the loss of its last bytes.
func (k *connection) CloseWrite() error {
	if c, ok := k.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

type connectionKey struct{}

// connectionOf returns the connection that Listen has accepted, also below TLS; nil
// for other connections.
func connectionOf(c net.Conn) *connection {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	k, _ := c.(*connection)
	return k
}

// recognise records on the request's connection whether its token is valid.
func recognise(ctx context.Context, good bool) {
	if k, _ := ctx.Value(connectionKey{}).(*connection); k != nil {
		k.of.set(func() { k.known = good })
	}
}

// addressOf returns the network of an address with a port: the single address of
// IPv4, or the /64 network of IPv6, which one customer has. It returns the zero
// Prefix for an invalid address.
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
