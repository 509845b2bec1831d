package kernel

import "golang.org/x/sync/errgroup"

// Concurrently calls do for each element of the list, at most limit at a time. It
// returns the results in the order of the list.
func Concurrently[T, R any](limit int, list []T, do func(T) R) []R {
	out := make([]R, len(list))
	var g errgroup.Group
	g.SetLimit(limit)
	for i, v := range list {
		g.Go(func() error {
			out[i] = do(v)
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	return out
}
