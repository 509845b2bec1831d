package agentstatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the server. Its clients are probes and one or two Prometheus servers.
const (
	readFor   = 5 * time.Second
	answerFor = 10 * time.Second
	maxHeader = 8 << 10
)

// Handler serves three paths. /healthz always responds with status 200. /readyz responds with 200 if
// the agent can take jobs, or with 503 and the reason if it cannot. /metrics is for Prometheus.
func (s *Status) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.unready(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ready\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(s.Metrics())
	})
	return mux
}

// Serve serves Handler at the address until stop is called. stop waits at most a second for running
// requests, and returns when the server has ended.
func (s *Status) Serve(address string, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("FAIRLEAD_STATUS_ADDRESS: %w", err)
	}
	srv := &http.Server{Handler: s.Handler(), ReadTimeout: readFor, WriteTimeout: answerFor, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the status server failed; the agent's status is no longer available", "err", err)
		}
	}()
	log.Info("serving the agent's status", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-done
	}, nil
}
