// Package plane repeats a plugin's requests to the control plane.
package plane

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/retry"
)

// Ask repeats a request until the control plane itself has answered it or ctx ends. A restart or a short outage of the control
// plane must not turn the success of a tool into a failure. try bounds each request. Ask begins no request after the time within;
// 0: until ctx ends. It does not repeat a request that is too large for a proxy.
func Ask[T any](ctx context.Context, within, try time.Duration, ask func(context.Context) (T, error)) (T, error) {
	pauses := retry.Policy{First: 200 * time.Millisecond, Longest: 3 * time.Second, Within: within, Passing: func(err error) bool {
		return !client.Refused(err) && !client.HasStatus(err, http.StatusRequestEntityTooLarge)
	}}
	return retry.Do(ctx, pauses, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, try)
		defer cancel()
		return ask(ctx)
	})
}
