package store

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Channel returns an update channel by name.
func (s *Store) Channel(ctx context.Context, name string) (Stored[Channel], error) {
	return get[Channel](ctx, s, channelKey(name), missing(fairlead.CodeChannelNotFound, name))
}

// Channels lists update channels by name.
func (s *Store) Channels(ctx context.Context, q fairlead.PageQuery) (Page[Channel], error) {
	return query[Channel](ctx, s, engine.Query{Partition: channelsPartition(), After: q.After, Limit: q.Limit})
}

// PutChannel writes an update channel.
func (t *Tx) PutChannel(r Stored[Channel]) { put(t, channelKey(r.V.Name), r) }

// DeleteChannel removes an update channel. Runners that follow it may then run
// any version.
func (t *Tx) DeleteChannel(r Stored[Channel]) { remove(t, channelKey(r.V.Name), r) }
