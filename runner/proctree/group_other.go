//go:build unix && !linux

package proctree

import (
	"context"
	"errors"
	"os"
)

// Group is a control group, of which this system has none.
type Group string

// ErrNoGroup says that this process may make no control group.
var ErrNoGroup = errors.New("this system has no control groups")

// FindGroup returns ErrNoGroup.
func FindGroup(string) (Group, error) { return "", ErrNoGroup }

// MakeGroup returns ErrNoGroup.
func MakeGroup(string) (Group, error) { return "", ErrNoGroup }

// Open returns ErrNoGroup.
func (Group) Open() (*os.File, error) { return nil, ErrNoGroup }

// Kill finds nothing.
func (Group) Kill(context.Context) error { return nil }

// Remove finds nothing.
func (Group) Remove(context.Context) error { return nil }

// GroupOf returns "".
func GroupOf(int) string { return "" }
