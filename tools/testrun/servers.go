package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/fairlead/fairlead/tools/dynamodblocal"
	"github.com/fairlead/fairlead/tools/elasticmq"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/testserver"
)

// servers are the servers that all tests of a run share.
type servers struct {
	environ []string // environment variables with the servers' addresses
	running []*testserver.Launched
	cluster kube.Server
	ready   chan struct{} // closed when the start of the cluster has succeeded or failed
}

// startServers starts the servers that the environment does not name. It does not wait
// until they answer: the tests wait for them, and the servers start while the tests are
// compiled. If a server cannot be installed, startServers prints a message. The tests of
// that server skip, or fail if the environment requires the server. The caller must call
// stop.
func startServers(ctx context.Context, stderr io.Writer) *servers {
	s := &servers{ready: make(chan struct{})}
	s.startCluster(stderr)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range []testserver.Program{dynamodblocal.Program(), elasticmq.Program(), moto.Program()} {
		if os.Getenv(p.EndpointEnv) != "" {
			continue
		}
		wg.Go(func() {
			l, err := p.Launch(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(stderr, "testrun: no shared %s: %v\n", p.Name, err)
				return
			}
			s.running = append(s.running, l)
			s.environ = append(s.environ, p.EndpointEnv+"="+l.URL)
		})
	}
	wg.Wait()
	return s
}

// startCluster starts the Kubernetes API server in the background, if it was built and
// the environment names no cluster.
func (s *servers) startCluster(stderr io.Writer) {
	path, err := "", error(nil)
	if os.Getenv(kube.KubeconfigEnv) == "" {
		path, err = s.cluster.Prepare()
	}
	if path == "" || err != nil {
		if err != nil {
			fmt.Fprintf(stderr, "testrun: no shared Kubernetes cluster: %v\n", err)
		}
		close(s.ready)
		return
	}
	s.environ = append(s.environ, kube.KubeconfigEnv+"="+path)
	go func() {
		defer close(s.ready)
		if err := s.cluster.Start(); err != nil {
			fmt.Fprintf(stderr, "testrun: no shared Kubernetes cluster: %v\n", err)
		}
	}()
}

// stop kills the servers and waits until they have exited.
func (s *servers) stop() {
	for _, l := range s.running {
		l.Stop()
	}
	<-s.ready
	s.cluster.Stop()
}
