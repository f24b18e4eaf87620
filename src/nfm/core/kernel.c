/* Mix and noise in one pass over the feature: what nfm/core/compiled.py calls. Plain C11, no torch headers.

   Noise is counter-based: Threefry-4x32-13 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") of
   the key, the example and the position in it; sums and shifts only, which every compiler turns into vectors. So any split over threads, and any machine, gives the same bits: there
   is no fused multiply-add (-ffp-contract=off), no libm, and nothing but IEEE additions, products, quotients and
   square roots in a fixed order. The sums are those of nfm/core/mixing.py and noise.py, in the same order too. */

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CHUNK 1024 /* elements of an example drawn together: stays in the first-level cache */
#define BATCH 8    /* chunks that a thread takes at once */
#define THREADS 256
#define INLINE static inline __attribute__((always_inline))

#ifdef NFM_CLONES /* one binary, the widest vectors of the machine that runs it */
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

enum law { SILENT = -1, GAUSSIAN = 0, UNIFORM = 1, RADEMACHER = 2 }; /* as in nfm/core/compiled.py */

struct noise {
    uint64_t key;
    float level, scale; /* two factors, rounded one after the other */
    int32_t law;
};

struct job { /* as in nfm/core/compiled.py */
    float *out;
    const float *in;
    const int64_t *other; /* [examples] who is mixed in (transposed: who took from it), or NULL: nothing is mixed */
    const float *own_part, *other_part; /* [examples] */
    uint8_t *starts; /* [examples] scratch of the transposed map */
    int64_t examples, size, channels; /* channels > 1: an example lies in memory with its channels last */
    struct noise add, mult, touch;
    float untouched; /* where touch + 1 is below this, there is no noise */
    int32_t transposed, threads;
    int64_t next; /* the first chunk that nobody took yet */
};

/* --- words -------------------------------------------------------------------------------------------------- */

#define ROTATED(word, by) ((word) << (by) | (word) >> (32 - (by)))
#define MIX(a, b, by) a += b, b = ROTATED(b, by) ^ a
#define TWO_ROUNDS(r0, r1, r2, r3) MIX(c0, c1, r0), MIX(c2, c3, r1), MIX(c0, c3, r2), MIX(c2, c1, r3)
#define EVEN_FOUR TWO_ROUNDS(10, 26, 11, 21), TWO_ROUNDS(13, 27, 23, 5)
#define ODD_FOUR TWO_ROUNDS(6, 20, 17, 11), TWO_ROUNDS(25, 10, 18, 20)
#define ADD_KEY(a, b, c, d, n) c0 += a, c1 += b, c2 += c, c3 += (d) + (n)

/* words[w * groups + g] = word w of the counter (first + g, example): the key is k0 k1 0 0, k4 its parity */
INLINE void draw_words(uint32_t *restrict words, int groups, uint64_t key, uint64_t example, uint64_t first) {
    const uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), k4 = 0x1BD11BDAu ^ k0 ^ k1;
    const uint32_t low = (uint32_t)first, c1_of_all = (uint32_t)(first >> 32) + k1;
    const uint32_t c2_of_all = (uint32_t)example, c3_of_all = (uint32_t)(example >> 32);
    for (int g = 0; g < groups; g++) {
        uint32_t c0 = low + (uint32_t)g + k0, c1 = c1_of_all, c2 = c2_of_all, c3 = c3_of_all;
        EVEN_FOUR, ADD_KEY(k1, 0, 0, k4, 1);
        ODD_FOUR, ADD_KEY(0, 0, k4, k0, 2);
        EVEN_FOUR, ADD_KEY(0, k4, k0, k1, 3);
        MIX(c0, c1, 6), MIX(c2, c3, 20);
        words[g] = c0, words[groups + g] = c1, words[2 * groups + g] = c2, words[3 * groups + g] = c3;
    }
}

/* --- laws --------------------------------------------------------------------------------------------------- */

/* -2 log(u), u in [2^-32, 1]: u = 2^e m, log(m) = 2 atanh((m - 1) / (m + 1)), four terms of its series */
INLINE float minus_twice_log(float u) {
    int32_t bits, exponent;
    float m;
    memcpy(&bits, &u, 4);
    exponent = (bits - 0x3f3504f3) >> 23; /* of sqrt(1/2): m lies in [sqrt(1/2), sqrt(2)) */
    bits -= exponent << 23;
    memcpy(&m, &bits, 4);
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const float series = 1.0f + z * (0.333333333f + z * (0.2f + z * 0.142857143f));
    return (float)exponent * -1.38629436f - 4.0f * s * series;
}

/* Box and Muller (1958): a word for the radius, a word for the angle (two bits of it choose the quadrant) */
INLINE void gaussian(const uint32_t *restrict words, float *restrict values, int groups) {
    for (int half = 0; half < 4 * groups; half += 2 * groups)
        for (int g = half; g < half + groups; g++) {
            const float u = (float)(int32_t)(words[g] >> 1) * 0x1p-31f + 0x1p-32f;
            const float radius = __builtin_sqrtf(minus_twice_log(u));
            const uint32_t turn = words[g + groups];
            const float angle = (float)((int32_t)turn >> 2) * (0x1.921fb6p-1f * 0x1p-29f); /* pi/4 */
            const float z = angle * angle;
            /* minimax on [-pi/4, pi/4]: errors 4e-9 and 1e-10 */
            const float sine =
                angle + angle * z * (-0x1.555546p-3f + z * (0x1.11076p-7f + z * -0x1.994eb4p-13f));
            const float cosine =
                1.0f - 0.5f * z + z * z * (0x1.55554ap-5f + z * (-0x1.6c0c8cp-10f + z * 0x1.9a025ap-16f));
            const float first = turn & 1 ? sine : cosine, second = turn & 1 ? cosine : sine;
            values[g] = radius * (turn & 2 ? -first : first);
            values[g + groups] = radius * (turn & 2 ? -second : second);
        }
}

INLINE void uniform(const uint32_t *restrict words, float *restrict values, int count) {
    for (int i = 0; i < count; i++) values[i] = (float)(int32_t)words[i] * 0x1p-31f;
}

INLINE void rademacher(const uint32_t *restrict words, float *restrict values, int count) {
    for (int i = 0; i < count; i++) values[i] = words[i] >> 31 ? -1.0f : 1.0f;
}

static inline int length(int64_t size, int64_t chunk) {
    const int64_t rest = size - chunk * CHUNK;
    return rest < CHUNK ? (int)rest : CHUNK;
}

/* Draw chunk `chunk` of an example of `size` elements: values[CHUNK], of which the first `length` count. */
VECTORISED static void draw(float *restrict values, const struct noise *noise, int64_t example, int64_t size, int64_t chunk) {
    uint32_t words[CHUNK];
    const int groups = (length(size, chunk) + 3) / 4;
    draw_words(words, groups, noise->key, (uint64_t)example, (uint64_t)chunk * (CHUNK / 4));
    if (noise->law == GAUSSIAN) gaussian(words, values, groups);
    else if (noise->law == UNIFORM) uniform(words, values, 4 * groups);
    else rademacher(words, values, 4 * groups);
}

/* --- mix and noise ------------------------------------------------------------------------------------------ */

/* Draw a noise with its level; `touched` [count] holds 0 and 1, or is NULL. */
INLINE void draw_levelled(float *restrict values, const struct noise *noise, const float *restrict touched,
                          int64_t example, int64_t size, int64_t chunk) {
    const int count = length(size, chunk);
    draw(values, noise, example, size, chunk);
    for (int i = 0; i < count; i++) values[i] *= noise->level;
    if (touched) for (int i = 0; i < count; i++) values[i] *= touched[i];
    if (noise->scale != 1.0f) for (int i = 0; i < count; i++) values[i] *= noise->scale;
}

INLINE const float *draw_touched(float *restrict values, const struct job *job, int64_t example, int64_t chunk) {
    if (job->touch.law == SILENT) return NULL;
    draw(values, &job->touch, example, job->size, chunk);
    for (int i = 0; i < CHUNK; i++) values[i] = values[i] + 1.0f >= job->untouched ? 1.0f : 0.0f;
    return values;
}

/* Walk over a chunk of an example with its channels last: `place` in memory of each element in order. */
#define FOR_EACH_PLACE(job, chunk, body)                                                \
    do {                                                                                \
        const int64_t inner = (job)->size / (job)->channels, start = (chunk) * CHUNK;   \
        int64_t row = start % inner, channel = start / inner;                           \
        for (int i = 0; i < length((job)->size, chunk); i++) {                          \
            const int64_t place = row * (job)->channels + channel;                      \
            body;                                                                       \
            if (++row == inner) row = 0, channel++;                                     \
        }                                                                               \
    } while (0)

/* Return a chunk of an example in order: where it lies, or copied to `buffer`. */
INLINE const float *fetch(const struct job *job, float *restrict buffer, int64_t example, int64_t chunk) {
    const float *source = job->in + example * job->size;
    if (job->channels == 1) return source + chunk * CHUNK;
    FOR_EACH_PLACE(job, chunk, buffer[i] = source[place]);
    return buffer;
}

INLINE void mix(float *restrict out, const float *restrict a, const float *restrict b, float own, float part,
                int count) {
    for (int i = 0; i < count; i++) out[i] = own * a[i] + part * b[i];
}

/* out = (1 + mult) * out + add, each noise if there is one */
INLINE void perturb(const struct job *job, float *restrict out, int64_t example, int64_t chunk) {
    float noise[CHUNK], mask[CHUNK];
    const int count = length(job->size, chunk);
    const float *touched = draw_touched(mask, job, example, chunk);
    if (job->mult.law != SILENT) {
        draw_levelled(noise, &job->mult, touched, example, job->size, chunk);
        for (int i = 0; i < count; i++) out[i] *= 1.0f + noise[i];
    }
    if (job->add.law != SILENT) {
        draw_levelled(noise, &job->add, touched, example, job->size, chunk);
        for (int i = 0; i < count; i++) out[i] += noise[i];
    }
}

/* Return where a chunk of the output is computed: in its place, or in `buffer`, from where `put` takes it. */
INLINE float *place_of(const struct job *job, float *buffer, int64_t example, int64_t chunk) {
    return job->channels == 1 ? job->out + example * job->size + chunk * CHUNK : buffer;
}

INLINE void put(const struct job *job, const float *restrict buffer, int64_t example, int64_t chunk) {
    float *restrict target = job->out + example * job->size;
    if (job->channels > 1) FOR_EACH_PLACE(job, chunk, target[place] = buffer[i]);
}

VECTORISED static void forward(const struct job *job, int64_t example, int64_t chunk) {
    float one[CHUNK], two[CHUNK], ordered[CHUNK];
    const int count = length(job->size, chunk);
    float *out = place_of(job, ordered, example, chunk);
    const float *a = fetch(job, one, example, chunk);
    if (job->other) {
        const float *b = fetch(job, two, job->other[example], chunk);
        mix(out, a, b, job->own_part[example], job->other_part[example], count);
    } else
        memcpy(out, a, sizeof(float) * (size_t)count);
    perturb(job, out, example, chunk);
    put(job, out, example, chunk);
}

/* One chunk of all examples: each gets its own part of (1 + mult) * in, and a part of that of who took from it.
   Along a cycle of the permutation each of these is computed once, for two outputs. */
VECTORISED static void transposed(const struct job *job, int64_t chunk) {
    float ordered[CHUNK], buffer[CHUNK], values[3][CHUNK];
    const int count = length(job->size, chunk);
    const size_t bytes = sizeof(float) * (size_t)count;
    for (int64_t start = 0; start < job->examples; start++) {
        if (!job->starts[start]) continue;
        float *first = values[0], *mine = first, *theirs = values[1], *spare = values[2];
        memcpy(first, fetch(job, buffer, start, chunk), bytes);
        perturb(job, first, start, chunk);
        for (int64_t example = start, taker; ; example = taker) {
            taker = job->other[example];
            if (taker != start) {
                memcpy(theirs, fetch(job, buffer, taker, chunk), bytes);
                perturb(job, theirs, taker, chunk);
            }
            float *out = place_of(job, ordered, example, chunk);
            mix(out, mine, taker == start ? first : theirs, job->own_part[example], job->other_part[taker], count);
            put(job, out, example, chunk);
            if (taker == start) break;
            float *done = mine == first ? spare : mine;
            mine = theirs, theirs = done;
        }
    }
}

/* Mark one example of each cycle of the permutation. */
static void mark_starts(struct job *job) {
    memset(job->starts, 2, (size_t)job->examples);
    for (int64_t start = 0; start < job->examples; start++) {
        if (job->starts[start] != 2) continue;
        for (int64_t next = job->other[start]; next != start; next = job->other[next]) job->starts[next] = 0;
        job->starts[start] = 1;
    }
}

/* --- threads: made for one call and gone after it, so that a fork finds none ---------------------------------- */

static void *work_through(void *argument) {
    struct job *job = argument;
    const int64_t chunks = (job->size + CHUNK - 1) / CHUNK;
    const int by_chunk = job->transposed && job->other; /* else the transposed map is the map */
    const int64_t units = by_chunk ? chunks : chunks * job->examples, batch = by_chunk ? 1 : BATCH;
    for (;;) {
        const int64_t first = __atomic_fetch_add(&job->next, batch, __ATOMIC_RELAXED);
        if (first >= units) return NULL;
        for (int64_t unit = first; unit < first + batch && unit < units; unit++)
            if (by_chunk) transposed(job, unit);
            else forward(job, unit / chunks, unit % chunks);
    }
}

EXPORT void nfm_mix_noise(struct job *job) {
    pthread_t helpers[THREADS];
    int made = 0;
    if (job->transposed && job->other) mark_starts(job);
    while (made < job->threads - 1 && made < THREADS && !pthread_create(&helpers[made], NULL, work_through, job))
        made++;
    work_through(job);
    while (made) pthread_join(helpers[--made], NULL);
}

/* out[last - first] = elements `first` to `last` of an example of `size` elements, without level */
VECTORISED static void fill(float *out, const struct noise *noise, int64_t example, int64_t size, int64_t first,
                            int64_t last) {
    float values[CHUNK];
    for (int64_t chunk = first / CHUNK; chunk * CHUNK < last; chunk++) {
        const int64_t start = chunk * CHUNK, from = first > start ? first : start;
        const int64_t to = start + CHUNK < last ? start + CHUNK : last;
        draw(values, noise, example, size, chunk);
        memcpy(out + (from - first), values + (from - start), sizeof(float) * (size_t)(to - from));
    }
}

/* Fill out[last - first] with the values of places `first` to `last` of examples in a row, `size` elements each. */
EXPORT void nfm_fill(float *out, int32_t law, uint64_t key, int64_t size, int64_t first, int64_t last) {
    const struct noise noise = {.key = key, .law = law};
    for (int64_t at = first; at < last;) {
        const int64_t example = at / size, end = (example + 1) * size < last ? (example + 1) * size : last;
        fill(out + (at - first), &noise, example, size, at - example * size, end - example * size);
        at = end;
    }
}

/* Which source this was built from: the build passes a digest of this file. */
EXPORT uint64_t nfm_digest(void) { return NFM_DIGEST; }
