package config

import "fmt"

// Switch is a setting that is On or Off. The template of a stack may have a condition in its place.
type Switch string

const (
	On  Switch = "on"
	Off Switch = "off"
)

// UnmarshalText reads "on" and "off".
func (s *Switch) UnmarshalText(text []byte) error {
	switch got := Switch(text); got {
	case On, Off:
		*s = got
		return nil
	default:
		return fmt.Errorf("%q is neither on nor off", text)
	}
}

// MarshalText returns the text of the switch.
func (s Switch) MarshalText() ([]byte, error) { return []byte(s), nil }
