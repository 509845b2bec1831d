package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The limits of the registry's process.
const (
	registryReadyIn = 30 * time.Second // it can wait for the end of the process of a control plane that was killed
	registryEndsIn  = 15 * time.Second // before it is killed
)

// registryReady is the line that the registry's process writes when it answers.
const registryReady = "ready"

// registryProcess is the registry of images in a process of its own, which the first request starts. A process that died is started
// again by the next request. It is a process because its library makes the start of each program that has it 70 ms slower. Safe for
// concurrent use.
type registryProcess struct {
	program string // path of the program cmd/fairlead-registry; "": there is none
	folder  string // of the repositories
	log     *slog.Logger

	mu      sync.Mutex
	current *runningRegistry // nil: none was started
	closed  bool
}

// runningRegistry is one process.
type runningRegistry struct {
	proxy http.Handler
	stdin io.Closer     // its end is the order to stop
	ended chan struct{} // closed: the process has ended
	kill  func()
}

var errRegistryClosed = errors.New("the control plane stops")

// ServeHTTP passes the request to the process. If there is none, it answers 503 in the form of the distribution specification.
func (r *registryProcess) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p, err := r.running()
	if err != nil {
		if !errors.Is(err, errRegistryClosed) {
			r.log.Error("the registry of images does not start", "error", err)
		}
		answerUnavailable(w, err.Error())
		return
	}
	p.proxy.ServeHTTP(w, req)
}

func answerUnavailable(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": "UNAVAILABLE", "message": message}}}) // the client may be gone
}

// running returns the process, and starts it if it does not run.
func (r *registryProcess) running() (*runningRegistry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRegistryClosed
	}
	if r.current != nil {
		select {
		case <-r.current.ended:
			r.log.Warn("the registry of images has ended; it starts again")
		default:
			return r.current, nil
		}
	}
	p, err := r.start()
	if err != nil {
		return nil, err
	}
	r.current = p
	return p, nil
}

// start starts the process and waits until it answers.
func (r *registryProcess) start() (_ *runningRegistry, err error) {
	if _, err := os.Stat(r.program); r.program == "" || err != nil {
		return nil, fmt.Errorf("the control plane has no registry of images, because the program %s is missing: install it beside the program of the control plane, or set $FAIRLEAD_REGISTRY to its path", r.program)
	}
	private, err := os.MkdirTemp("", "fairlead-") // short, because the path of a socket has about a hundred bytes
	if err != nil {
		return nil, fmt.Errorf("create the folder of the registry's socket: %w", err)
	}
	socket := filepath.Join(private, "images")
	cmd := exec.Command(r.program, "--folder", r.folder, "--socket", socket)
	cmd.Stderr = &lineLogger{log: r.log}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		var stdout io.ReadCloser
		if stdout, err = cmd.StdoutPipe(); err == nil {
			err = startReady(cmd, stdout)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the registry of images: %w", err), os.RemoveAll(private))
	}
	p := &runningRegistry{stdin: stdin, ended: make(chan struct{}), kill: func() { _ = cmd.Process.Kill() }}
	go func() {
		if err := cmd.Wait(); err != nil {
			r.log.Warn("the registry of images ended", "error", err)
		}
		if err := os.RemoveAll(private); err != nil {
			r.log.Warn("the folder of the registry's socket stays", "error", err)
		}
		close(p.ended)
	}()
	p.proxy = proxyTo(socket, r.log)
	return p, nil
}

// startReady starts the command and waits for the line on its output that it is ready. It kills a process that does not become ready.
func startReady(cmd *exec.Cmd, stdout io.Reader) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(registryReadyIn, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if strings.TrimSpace(line) == registryReady {
		return nil
	}
	_ = cmd.Process.Kill() // it may have ended
	return errors.Join(fmt.Errorf("it does not become ready: %q, %w", line, err), cmd.Wait())
}

// proxyTo returns a handler that passes requests to the socket.
func proxyTo(socket string, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "registry", r.In.Host
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				w.WriteHeader(http.StatusInsufficientStorage)
				return
			}
			if r.Context().Err() == nil {
				log.Warn("the registry of images does not answer", "error", err)
			}
			answerUnavailable(w, "the registry of images does not answer: try again")
		},
	}
}

// Close stops the process, and waits for its end.
func (r *registryProcess) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.current == nil {
		return nil
	}
	_ = r.current.stdin.Close() // it may have ended
	late := time.AfterFunc(registryEndsIn, r.current.kill)
	defer late.Stop()
	<-r.current.ended
	return nil
}

// lineLogger writes each line to a log, at level debug.
type lineLogger struct{ log *slog.Logger }

func (l *lineLogger) Write(p []byte) (int, error) {
	for line := range strings.SplitSeq(strings.TrimSpace(string(p)), "\n") {
		l.log.Debug("registry of images: " + line)
	}
	return len(p), nil
}
