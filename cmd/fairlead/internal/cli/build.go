package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
)

// build builds the components whose source is not in the app's folder and those with a Dockerfile, and waits for the builds. It returns the jobs by
// component, and the artifacts of the components that an earlier build has built.
func (c *cli) build(ctx context.Context, cl *client.Client, app *appspec.App, request wire.BuildAppRequest) (jobs, earlier map[string]string, err error) {
	built := false
	for _, comp := range app.Components {
		built = built || comp.Built()
	}
	if !built {
		return nil, nil, nil
	}
	all, err := cl.BuildApp(ctx, app.Name, request)
	if err != nil {
		return nil, nil, err
	}
	jobs, earlier = map[string]string{}, map[string]string{}
	var mu sync.Mutex // guards the output
	g, ctx := errgroup.WithContext(ctx)
	for _, b := range all.Builds {
		if b.Job == nil {
			earlier[b.Component] = b.Artifact
			continue
		}
		jobs[b.Component] = b.Job.ID
		from := "the app's folder"
		if at := b.Job.Build; at.URL != "" {
			from = strings.TrimSpace(at.Chart+" "+at.Ref) + " of " + at.URL
		}
		c.say("Building component %s from %s (job %s on runner %s)", b.Component, from, b.Job.ID, b.Job.Runner)
		g.Go(func() error {
			say := func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				c.say(format, args...)
			}
			return awaitBuild(ctx, cl, b, watch.LogOptions{Client: cl, Follow: true, Now: c.env.Now, Tell: func(text string) { say("%s", text) }}, say)
		})
	}
	return jobs, earlier, g.Wait()
}

// awaitBuild waits until the build ends. It shows the log of a build that fails.
func awaitBuild(ctx context.Context, cl *client.Client, b wire.ComponentBuild, o watch.LogOptions, say func(string, ...any)) error {
	var log strings.Builder
	if err := watch.Log(ctx, b.Job.ID, o, func(chunk wire.LogChunk) error {
		log.Write(chunk.Data)
		return nil
	}); err != nil {
		return err
	}
	j, err := cl.GetJob(ctx, b.Job.ID)
	if err != nil {
		return err
	}
	if j.State == "succeeded" {
		return nil
	}
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		say("%s | %s", b.Component, view.Clean(line))
	}
	detail := fmt.Sprintf("the build of component %s %s", b.Component, j.State)
	if j.Message != "" {
		detail += ": " + j.Message
	}
	return &failure{code: exitFailed, problem: local("build-"+j.State, "Build "+j.State, detail, view.Advice(j.Next))}
}
