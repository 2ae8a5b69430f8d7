package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// frames are ten frames, and where each ends.
func frames() (data []byte, ends []int) {
	for i := range 10 {
		data = AppendFrame(data, []byte(strings.Repeat(fmt.Sprint(i), 5*i)))
		ends = append(ends, len(data))
	}
	return data, ends
}

// read returns the payloads of data, and what is damaged.
func read(t testing.TB, data []byte) (all []string, damages []*Damage) {
	reader := NewReader(bytes.NewReader(data), int64(len(data)))
	at := int64(0)
	for {
		payload, err := reader.Next()
		if errors.Is(err, io.EOF) {
			require.Equal(t, int64(len(data)), reader.At())
			return all, damages
		}
		if damage, ok := errors.AsType[*Damage](err); ok {
			require.Equal(t, at, damage.From)
			require.Equal(t, reader.At(), damage.To)
			damages = append(damages, damage)
		} else {
			require.NoError(t, err)
			all = append(all, string(payload))
		}
		require.Greater(t, reader.At(), at)
		at = reader.At()
	}
}

func TestCutAnywhere(t *testing.T) {
	data, ends := frames()
	whole := 0
	for n := range len(data) + 1 {
		if n == ends[whole] {
			whole++
		}
		all, damages := read(t, data[:n])
		require.Len(t, all, whole)
		switch {
		case whole > 0 && n == ends[whole-1] || n == 0:
			require.Empty(t, damages)
		default:
			require.Len(t, damages, 1)
			require.True(t, damages[0].Torn)
		}
		if whole == len(ends) {
			break
		}
		all, damages = read(t, append(bytes.Clone(data[:n]), make([]byte, 50)...))
		require.GreaterOrEqual(t, len(all), whole)
		require.LessOrEqual(t, len(all)+len(damages), whole+2)
	}
}

// Each bit that is another one costs the frame that it is in.
func TestEveryBit(t *testing.T) {
	data, ends := frames()
	want, _ := read(t, data)
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			all, damages := read(t, data)
			data[i] ^= 1 << bit
			require.Len(t, damages, 1)
			require.LessOrEqual(t, damages[0].From, int64(i))
			require.Greater(t, damages[0].To, int64(i))
			hit := 0
			for ends[hit] <= i {
				hit++
			}
			require.Equal(t, append(append([]string(nil), want[:hit]...), want[hit+1:]...), all)
			require.False(t, damages[0].Torn && hit < 9)
		}
	}
}

func TestGarbageIsSkipped(t *testing.T) {
	data, _ := frames()
	want, _ := read(t, data)
	garbage := bytes.Repeat([]byte("garbage"), 50_000) // longer than a buffer
	all, damages := read(t, bytes.Join([][]byte{garbage, data, garbage, data, garbage}, nil))
	require.Equal(t, append(want, want...), all)
	require.Len(t, damages, 3)
	for _, d := range damages {
		require.False(t, d.Torn)
		require.Equal(t, int64(len(garbage)), d.To-d.From)
	}
	_, damages = read(t, append(data, make([]byte, 200_000)...))
	require.Len(t, damages, 1)
	require.True(t, damages[0].Torn, "zeros")
}

func FuzzReader(f *testing.F) {
	data, _ := frames()
	f.Add(data)
	f.Add(data[1:])
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Cost(t, len(data), 1000, func() { read(t, data) })
	})
}

// Append writes all or nothing, and says so if that is not known.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := Open(path, 0, true)
	require.NoError(t, err)
	require.NoError(t, file.Append([]byte("one")))
	file.SetRoom(5)
	require.ErrorIs(t, file.Append([]byte("two")), ErrNoRoom)
	file.SetRoom(0)
	require.NoError(t, file.Append([]byte("three")))
	require.NoError(t, file.Check())
	require.NoError(t, file.Close())
	require.NoError(t, file.Close())
	require.ErrorIs(t, file.Append([]byte("four")), os.ErrClosed)

	file, err = Open(path, 3, false)
	require.NoError(t, err)
	require.NoError(t, file.Append([]byte("more")))
	requireContent(t, path, "onemore")
	require.NoError(t, os.Truncate(path, 2))
	require.ErrorIs(t, file.Check(), ErrShort)
	require.NoError(t, os.Rename(path, path+".old"))
	require.ErrorIs(t, file.Check(), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("another"), 0o600))
	require.ErrorIs(t, file.Check(), ErrReplaced)
	require.NoError(t, file.file.Close())
	require.Error(t, file.Append([]byte("lost")))
	require.False(t, file.IsOpen())

	_, err = Open(path+".missing", 1, false)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"one", "another"} {
		size, err := Replace(path, true, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
		require.NoError(t, err)
		require.Equal(t, int64(len(text)), size)
		requireContent(t, path, text)
	}
	_, err := Replace(path, true, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return ErrNoRoom })
	require.ErrorIs(t, err, ErrNoRoom)
	requireContent(t, path, "another")
	require.NoFileExists(t, path+Unfinished)
	_, err = Replace(filepath.Join(path, "none"), false, func(io.Writer) error { return nil })
	require.Error(t, err)
}

func requireContent(t *testing.T, path, want string) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(data))
}

// A directory of another user may have links to files that only this process may write.
func TestOwnRefusesADirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	state, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("content"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(state, "lock")))
	require.NoError(t, os.Chown(state, 12345, 12345))
	lock := Lock{Path: state}
	require.EqualError(t, lock.Own("sub"), "state directory "+state+" belongs to user 12345, whose links could have other files overwritten: "+
		"run tributary as that user, or change the owner (chown -R)")
	content, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "content", string(content))
	require.NoDirExists(t, filepath.Join(state, "sub"))
}
