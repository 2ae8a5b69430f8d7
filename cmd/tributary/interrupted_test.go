package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestInterrupted(t *testing.T) {
	err := runCommand(func(*cobra.Command, []string) error { return fmt.Errorf("get: %w", context.Canceled) })(newVersion(), nil)
	require.EqualError(t, err, "interrupted")
}
