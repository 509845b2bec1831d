package local

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// DirectRunners returns the names of the runners that an agent next to the control
// plane must serve, by runner ID.
func (s *Server) DirectRunners(ctx context.Context) (map[string]string, error) {
	return s.control.DirectRunners(ctx)
}

// DirectConfiguration returns a runner's configuration and its revision. The
// configuration includes secrets: it must not leave this process.
func (s *Server) DirectConfiguration(ctx context.Context, id string) (revision string, runner json.RawMessage, err error) {
	c, err := s.control.DirectConfiguration(ctx, fairlead.RunnerID(id))
	if err != nil {
		return "", nil, err
	}
	return c.Revision, c.Runner, nil
}

// DirectEnrolment creates a single-use token that enrols an agent of the runner.
func (s *Server) DirectEnrolment(ctx context.Context, id string) (string, error) {
	return s.control.DirectEnrolment(ctx, fairlead.RunnerID(id))
}
