package provider

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextsOverLimit_Refused(t *testing.T) {
	long := strings.Repeat("a", maxText+1)
	_, err := ParseURL("dubbo://10.0.0.1/a?b=" + long)
	require.ErrorContains(t, err, "(limit 1048576)")
	_, _, err = ParseInstance("app", []byte(`{"name": "`+long+`"}`))
	require.ErrorContains(t, err, "(limit 1048576)")
	_, _, err = ParseMetadata([]byte(`{"app": "` + long + `"}`))
	require.ErrorContains(t, err, "(limit 1048576)")
	require.Less(t, len(err.Error()), 200)
	deep := strings.Repeat(`{"services":`, 20_000)
	_, _, err = ParseMetadata([]byte(deep))
	require.ErrorContains(t, err, "max depth", "JSON of package json goes 10,000 deep")
}
