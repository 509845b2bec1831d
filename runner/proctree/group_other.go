//go:build unix && !linux

package proctree

import (
	"context"
	"errors"
	"os"
)

// Group is a control group. This system has none.
type Group string

// ErrNoGroup means that this process may not make a control group.
var ErrNoGroup = errors.New("this system has no control groups")

// FindGroup returns ErrNoGroup.
func FindGroup(string) (Group, error) { return "", ErrNoGroup }

// MakeGroup returns ErrNoGroup.
func MakeGroup(string) (Group, error) { return "", ErrNoGroup }

// Open returns ErrNoGroup.
func (Group) Open() (*os.File, error) { return nil, ErrNoGroup }

// Kill does nothing.
func (Group) Kill(context.Context) error { return nil }

// Remove does nothing.
func (Group) Remove(context.Context) error { return nil }

// GroupOf returns "".
func GroupOf(int) string { return "" }
