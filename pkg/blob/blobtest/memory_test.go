package blobtest_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
)

func TestMemoryConforms(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		Open:     func(*testing.T, string) (blob.Store, func()) { return blobtest.Memory(), func() {} },
		Volatile: true,
	})
}
