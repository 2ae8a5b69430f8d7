package zookeeper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
	"tributary/internal/testutil"
)

// answer returns an answer to a request: a header, and the content.
func answer(to, failed uint32, content ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(content))) //nolint:gosec // it is short
	b = binary.BigEndian.AppendUint32(b, to)
	b = binary.BigEndian.AppendUint64(b, 7)
	b = binary.BigEndian.AppendUint32(b, failed)
	return append(b, content...)
}

func request(number, kind uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 8)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, number), kind)
}

// TestNamesOverAnswerSize_Refused has answers come in pieces of any size: good ones of all kinds, and then one that would
// take 64 GB.
func TestNamesOverAnswerSize_Refused(t *testing.T) {
	many := []byte{0xff, 0xff, 0xff, 0xff}
	two := []byte{0, 0, 0, 2, 0, 0, 0, 1, 'a', 0, 0, 0, 1, 'b'}
	good := bytes.Join([][]byte{
		{0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x10, 0},                 // the first one, which has no number
		answer(1, 0, two...),                                    // names
		answer(2, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1),        // a transaction
		answer(0xfffffffe, 0),                                   // to a ping
		answer(3, 0xffffff9b),                                   // no node
		answer(3, 0xffffff9b, many...),                          // an error without content
		answer(4, 0, append(bytes.Clone(two), 1, 2, 3, 4)...),   // names, and the status of their node
		answer(5, 0, 0, 0, 0, 0),                                // none
		{0, 0, 0, 0}, {0, 0, 0, 2, 1, 2}, answer(4, 0, many...), // a number that is over
	}, nil)
	for _, reader := range []func([]byte) []int{
		func(b []byte) []int { return []int{len(b)} },
		func(b []byte) (sizes []int) {
			for range b {
				sizes = append(sizes, 1)
			}
			return sizes
		},
		func(b []byte) (sizes []int) {
			for n := 0; n < len(b); n += 7 {
				sizes = append(sizes, min(7, len(b)-n))
			}
			return sizes
		},
	} {
		answers := newAnswers(t.Context())
		answers.sawRequest([]byte{0, 0, 0, 2, 1, 2})
		for number, kind := range map[uint32]uint32{1: getChildren, 2: 3, 3: getChildren2, 4: getChildren2, 5: getChildren, 6: getChildren2} {
			answers.sawRequest(request(number, kind))
		}
		unread := good
		for _, size := range reader(good) {
			require.NoError(t, answers.inspect(unread[:size]))
			unread = unread[size:]
		}
		require.Equal(t, map[uint32]bool{6: true}, answers.names)
		require.EqualError(t, answers.inspect(answer(6, 0, many...)), "answer claims 4294967295 names in 0 bytes")
	}
}

// TestAnswers_Memory counts an answer, with its decoded names, until the next one.
func TestAnswers_Memory(t *testing.T) {
	pool := intake.NewPool(intake.Limits{Answer: 1000})
	a := newAnswers(pool.Source(t.Context()))
	for number := range uint32(4) {
		a.sawRequest(request(number, getChildren))
	}
	names := func(count int) []byte {
		return append([]byte{0, 0, 0, byte(count)}, bytes.Repeat([]byte{0, 0, 0, 1, 'x'}, count)...)
	}
	for number := range uint32(3) {
		text := answer(number, 0, names(20)...)
		require.NoError(t, a.inspect(text))
		require.Equal(t, len(text)-lengthSize+20*nameBytes, pool.Taken())
	}
	require.ErrorContains(t, a.inspect(answer(3, 0, names(30)...)), "limits.answerBytes", "of 170 bytes, but 960 more decoded")
	a.lease.Release()
	a = newAnswers(pool.Source(t.Context()))
	require.ErrorContains(t, a.inspect([]byte{0, 0, 4, 0}), "limits.answerBytes")
	require.Zero(t, pool.Taken())
}

// TestConnection_EndsWithOversizedAnswer has the library's connection read one.
func TestConnection_EndsWithOversizedAnswer(t *testing.T) {
	s := &session{}
	greeting := append([]byte{0, 0, 0, 36}, make([]byte, 36)...)
	answers := bytes.NewReader(append(greeting, answer(1, 0, 0xff, 0xff, 0xff, 0xff)...))
	checkedConn := newCheckedConn(t.Context(), answering{Reader: iotest.OneByteReader(answers)}, 0, "h:2181", s)
	_, err := checkedConn.Write(request(1, getChildren2))
	require.NoError(t, err)
	_, err = checkedConn.Read(make([]byte, 1))
	for err == nil {
		_, err = checkedConn.Read(make([]byte, 100))
	}
	require.EqualError(t, err, "h:2181: answer claims 4294967295 names in 0 bytes")
	require.Equal(t, err, s.failed)
}

// FuzzAnswers has any bytes as the answers of a server. The result does not depend on the chunks.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x18\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01abcd"), uint8(3))
	f.Add([]byte("\x00\x00\x00\x14\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"), uint8(0))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x02ab"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		var errs []string
		for _, size := range []int{max(len(b), 1), 1 + int(cut)} {
			answers := newAnswers(t.Context())
			answers.names = map[uint32]bool{1: true, 2: true}
			var err error
			testutil.Cost(t, len(b), 100, func() {
				for part := range slices.Chunk(b, size) {
					if err = answers.inspect(part); err != nil {
						break
					}
				}
			})
			errs = append(errs, fmt.Sprint(err, answers.names))
		}
		require.Equal(t, errs[0], errs[1])
	})
}
